//! Sizes as mdadm reads them.

use std::str::FromStr;

/// The sentence of a help text about [`Size`].
pub(crate) const UNITS: &str =
    "SIZE is in KiB, or has a suffix K, M, G or T (powers of 1024) or s (sectors of 512 bytes).";

/// A size in bytes, whole sectors: a bare number counts KiB; K, M, G and T are binary; s counts sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl Size {
    /// In sectors.
    pub(crate) const fn sectors(self) -> u64 {
        self.0 / 512
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_size(text)
    }
}

/// Reads a size.
fn parse_size(text: &str) -> Result<Size, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "s" => 512,
        "" | "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        unit => return Err(format!("'{unit}' is not a unit; use K, M, G, T or s (a bare number is in KiB)")),
    };
    let number: u64 = digits.parse().map_err(|_| {
        format!("'{text}' is not a size; write a number of KiB, or a number with K, M, G, T or s")
    })?;
    let bytes = number.checked_mul(unit).filter(|bytes| *bytes < 1 << 63);
    bytes.map(Size).ok_or_else(|| format!("'{text}' is larger than any device"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_counts_kib() {
        assert_eq!(parse_size("64"), Ok(Size(64 << 10)));
        assert_eq!(parse_size("64K"), Ok(Size(64 << 10)));
        assert_eq!(parse_size("3s"), Ok(Size(1536)));
        assert_eq!(parse_size("2t"), Ok(Size(2 << 40)));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "K", "-1", "1.5M", "1X", "99999999999999999999", "9999999999T", "é"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
