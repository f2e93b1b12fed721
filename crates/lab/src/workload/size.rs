//! fio's sizes and times: a number with a suffix. `1k` is 1024 bytes, as fio reads it by default.

use std::fmt::Write;

use stripewise_engine::units::Nanos;

const SIZE_SUFFIXES: [(&str, u32); 5] = [("k", 10), ("m", 20), ("g", 30), ("t", 40), ("p", 50)];
const TIME_SUFFIXES: [(&str, f64); 6] =
    [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];

/// Reads `4k`, `1M`, `64KiB`, `512`: bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size; write bytes with a suffix k, m, g or t, such as 64k");
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.len() - lower.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = lower[..digits].parse().map_err(|_| wrong())?;
    let suffix = lower[digits..].trim_start();
    let suffix = suffix.strip_suffix("ib").or_else(|| suffix.strip_suffix('b')).unwrap_or(suffix);
    let shift = if suffix.is_empty() {
        0
    } else {
        SIZE_SUFFIXES.iter().find(|(s, _)| *s == suffix).ok_or_else(wrong)?.1
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is larger than any storage"))
}

/// Prints bytes with the largest suffix that leaves a whole number: `4k`, `1m`, `512`.
pub fn print_size(bytes: u64) -> String {
    let fits = |shift: u32| bytes > 0 && bytes.trailing_zeros() >= shift;
    match SIZE_SUFFIXES.iter().rev().find(|(_, shift)| fits(*shift)) {
        Some((suffix, shift)) => format!("{}{suffix}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Prints a chunk as mdadm takes it: KiB with `K`.
pub fn print_chunk(bytes: u64) -> String {
    format!("{}K", bytes / 1024)
}

/// Reads `20s`, `500ms`, `2m`, `20` (seconds): a length of time.
pub fn parse_time(text: &str) -> Result<Nanos, String> {
    let wrong = || {
        format!(
            "'{text}' is not a time; write seconds, or a number with a suffix us, ms, s, m, h or d, such as 500ms"
        )
    };
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.len() - lower.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let number: f64 = lower[..digits].parse().map_err(|_| wrong())?;
    let factor = match lower[digits..].trim_start() {
        "" => 1.0,
        suffix => TIME_SUFFIXES.iter().find(|(s, _)| *s == suffix).ok_or_else(wrong)?.1,
    };
    let seconds = number * factor;
    if seconds > 1e9 {
        return Err(format!("'{text}' is longer than any run"));
    }
    Ok(Nanos::from_secs_f64(seconds))
}

/// Prints a length of time with the largest unit that leaves a whole number: `20s`, `500ms`, `1500us`.
pub fn print_time(time: Nanos) -> String {
    for (unit, nanos) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if time.0.is_multiple_of(nanos) {
            return format!("{}{unit}", time.0 / nanos);
        }
    }
    let mut text = String::new();
    let _ = write!(text, "{}us", time.0 as f64 / 1e3);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_fio_suffixes() {
        for (text, bytes) in [
            ("4k", 4096),
            ("4K", 4096),
            ("64KiB", 65_536),
            ("1m", 1 << 20),
            ("2g", 2 << 30),
            ("512", 512),
            ("3 t", 3 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "k", "4x", "-4k", "4.5k", "99999999999999999999", "20000000000g"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_in_fio_suffixes() {
        for (text, nanos) in [
            ("20s", 20_000_000_000),
            ("500ms", 500_000_000),
            ("1.5s", 1_500_000_000),
            ("2m", 120_000_000_000),
        ] {
            assert_eq!(parse_time(text), Ok(Nanos(nanos)), "{text}");
        }
        for text in ["", "s", "-1s", "1y", "1e400", "inf", "1..2"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_printed_reads_back() {
        for bytes in [0, 1, 512, 1023, 1024, 4096, 65_536, 1 << 20, 3 << 30, (1 << 40) + 512] {
            assert_eq!(parse_size(&print_size(bytes)), Ok(bytes));
        }
        for nanos in [0, 1, 1_000, 1_500_000, 20_000_000_000] {
            assert_eq!(parse_time(&print_time(Nanos(nanos))), Ok(Nanos(nanos)));
        }
        assert_eq!(print_chunk(1 << 20), "1024K");
    }
}
