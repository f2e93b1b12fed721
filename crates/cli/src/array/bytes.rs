//! Offsets and lengths in bytes.

/// Reads a number of bytes: a bare number, or one with K, M, G, T or P (powers of 1024).
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        "p" | "pib" => 50,
        _ => return Err("not a size; write a number of bytes, or a number with K, M, G, T or P".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "not a size; begin with a whole number".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "the size is larger than any storage".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn sizes_are_bytes_unless_they_say_otherwise() {
        for (text, bytes) in
            [("0", 0), ("513", 513), ("4K", 4096), ("1m", 1 << 20), ("2GiB", 2 << 30), ("1T", 1 << 40)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1.5M", "4X", "99999999999999999999", "16777216P"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
