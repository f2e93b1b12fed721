//! One colour per subject value, the same in every chart and table, for the light and the dark theme.
//! Values that are quantities take colours from an ordered ramp, so that the order shows; names take
//! colours that differ in hue and lightness, so that they stay apart for colour-blind readers.

/// From dark indigo to gold, at least 3:1 against the light surface.
const RAMP_LIGHT: &[[u8; 3]] =
    &[[66, 30, 122], [52, 84, 184], [16, 126, 164], [10, 138, 98], [104, 138, 8], [184, 118, 0]];
/// From violet to yellow, at least 3:1 against the dark surface.
const RAMP_DARK: &[[u8; 3]] =
    &[[158, 128, 255], [96, 162, 255], [48, 196, 214], [72, 214, 152], [180, 220, 76], [255, 216, 78]];
/// The colours of Okabe and Ito ("Color Universal Design", 2008), darkened where the surface needs it.
const NAMES_LIGHT: &[[u8; 3]] =
    &[[0, 114, 178], [213, 94, 0], [0, 138, 100], [176, 84, 140], [138, 110, 0], [40, 140, 200]];
/// The same, lightened for the dark surface.
const NAMES_DARK: &[[u8; 3]] =
    &[[86, 170, 240], [255, 140, 66], [60, 206, 160], [232, 150, 200], [240, 228, 66], [150, 215, 255]];

/// Colours by subject value, in their order.
pub(super) struct Palette {
    /// `#rrggbb` for the light theme.
    pub(super) light: Vec<String>,
    /// `#rrggbb` for the dark theme.
    pub(super) dark: Vec<String>,
}

impl Palette {
    /// Colours for these values.
    pub(super) fn new(values: &[String]) -> Self {
        let ordered = values.len() > NAMES_LIGHT.len() || values.iter().all(|value| is_quantity(value));
        let colours = |ramp: &[[u8; 3]], names: &[[u8; 3]]| {
            (0..values.len())
                .map(|index| if ordered { along(ramp, index, values.len()) } else { hex(names[index]) })
                .collect()
        };
        Self { light: colours(RAMP_LIGHT, NAMES_LIGHT), dark: colours(RAMP_DARK, NAMES_DARK) }
    }
}

/// Whether a value is a number with an optional size suffix, e.g. `64K`, `4096`, `0.5`, `1MiB`.
fn is_quantity(value: &str) -> bool {
    let suffix = value.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    suffix.len() < value.len() && suffix.chars().all(|c| "kKmMgGtTiB".contains(c))
}

/// The colour of value `index` of `count` on a ramp, interpolated between its stops.
fn along(ramp: &[[u8; 3]], index: usize, count: usize) -> String {
    let last = ramp.len() - 1;
    let position = if count > 1 { (index * last) as f64 / (count - 1) as f64 } else { last as f64 / 2.0 };
    let low = (position.floor() as usize).min(last);
    let high = (low + 1).min(last);
    let fraction = position - low as f64;
    let mix = |channel: usize| {
        let (a, b) = (f64::from(ramp[low][channel]), f64::from(ramp[high][channel]));
        (a + (b - a) * fraction).round() as u8
    };
    hex([mix(0), mix(1), mix(2)])
}

fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance as WCAG 2 defines it.
    fn luminance(hex: &str) -> f64 {
        let channel = |range| {
            let c = f64::from(u8::from_str_radix(&hex[range], 16).unwrap()) / 255.0;
            if c <= 0.03928 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1..3) + 0.7152 * channel(3..5) + 0.0722 * channel(5..7)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn quantities_are_told_from_names() {
        assert!(["64K", "4096", "0.5", "1MiB", "8m"].into_iter().all(is_quantity));
        assert!(!["left-symmetric", "", "K", "none", "4x"].into_iter().any(is_quantity));
    }

    #[test]
    fn every_colour_is_its_own_and_stands_out_from_its_surface() {
        for names in [false, true] {
            for count in 1..=12 {
                let values: Vec<_> =
                    (0..count).map(|i| if names { format!("v{i}") } else { i.to_string() }).collect();
                let palette = Palette::new(&values);
                for (colours, surface) in [(&palette.light, "#ffffff"), (&palette.dark, "#161b24")] {
                    assert_eq!(colours.len(), count);
                    assert!(colours.iter().all(|colour| contrast(colour, surface) >= 3.0), "{colours:?}");
                    let distinct: std::collections::BTreeSet<_> = colours.iter().collect();
                    assert_eq!(distinct.len(), count);
                }
            }
        }
    }
}
