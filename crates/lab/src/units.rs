//! Figures for people, in the unit that suits them.

/// A time from microseconds to days, of three digits or so.
pub fn time(seconds: f64) -> String {
    const UNITS: [(&str, f64, f64); 6] = [
        ("us", 1e-3, 1e-6),
        ("ms", 1.0, 1e-3),
        ("s", 120.0, 1.0),
        ("min", 3600.0, 60.0),
        ("h", 172_800.0, 3600.0),
        ("days", f64::INFINITY, 86_400.0),
    ];
    let unit = UNITS.iter().find(|(_, below, _)| seconds < *below);
    let (name, _, one) = unit.unwrap_or(&UNITS[5]);
    format!("{} {name}", three_digits(seconds / one))
}

/// A number of three digits or so, as many as tell small ones from nothing.
pub fn three_digits(number: f64) -> String {
    match number.abs() {
        small if small > 0.0 && small < 0.01 => format!("{number:.1e}"),
        small if small < 10.0 => format!("{number:.2}"),
        _ => format!("{number:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_the_unit_that_suits_them() {
        assert_eq!(time(0.000_012_34), "12.3 us");
        assert_eq!(time(0.25), "250.0 ms");
        assert_eq!(time(1.5), "1.50 s");
        assert_eq!(time(5400.0), "1.50 h");
        assert_eq!(time(86_400.0 * 220.0), "220.0 days");
        assert_eq!(time(0.0), "0.00 us");
    }

    #[test]
    fn small_numbers_are_told_from_nothing() {
        assert_eq!(three_digits(0.004), "4.0e-3");
        assert_eq!(three_digits(0.0), "0.00");
        assert_eq!(three_digits(1234.56), "1234.6");
    }
}
