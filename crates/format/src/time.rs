//! Points in time as superblocks hold them.

const MICROS_SHIFT: u32 = 40;
const SECONDS_MASK: u64 = (1 << MICROS_SHIFT) - 1;

/// Seconds since 1970 in the low 40 bits and microseconds in the high 24, as in version-1 superblocks
/// (`MD_SUPERBLOCK_1_TIME_SEC_MASK`). Version 0.90 has 32 bits of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// A whole second.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds & SECONDS_MASK)
    }

    /// Seconds since 1970.
    pub const fn seconds(self) -> u64 {
        self.0 & SECONDS_MASK
    }

    /// Microseconds within the second.
    pub const fn micros(self) -> u32 {
        (self.0 >> MICROS_SHIFT) as u32
    }

    /// The time as C's `ctime` writes it, `Sat Nov 21 11:22:55 2026`, on a clock so many seconds east of UTC.
    pub fn calendar(self, utc_offset_seconds: i32) -> String {
        const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let local = self.seconds() as i64 + i64::from(utc_offset_seconds);
        let (day, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day_of_month) = civil(day);
        format!(
            "{} {} {day_of_month:2} {:02}:{:02}:{:02} {year}",
            DAYS[day.rem_euclid(7) as usize],
            MONTHS[month],
            second / 3600,
            second / 60 % 60,
            second % 60
        )
    }
}

/// The year, month (from 0) and day of the month of a day counted from 1970-01-01, in the proleptic Gregorian
/// calendar. Counting years from March puts the leap day last, so that months before it have fixed lengths.
fn civil(day: i64) -> (i64, usize, i64) {
    const DAYS_FROM_MARCH_0000: i64 = 719_468;
    const DAYS_OF_ERA: i64 = 146_097;
    let day = day + DAYS_FROM_MARCH_0000;
    let (era, day) = (day.div_euclid(DAYS_OF_ERA), day.rem_euclid(DAYS_OF_ERA));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    (era * 400 + year + i64::from(month < 2), month as usize, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        for (seconds, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (1_078_099_199, "Sun Feb 29 23:59:59 2004"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
        ] {
            assert_eq!(Timestamp::from_seconds(seconds).calendar(0), text);
        }
        assert_eq!(Timestamp::from_seconds(0).calendar(-3600), "Wed Dec 31 23:00:00 1969");
    }

    #[test]
    fn seconds_and_micros_share_a_word() {
        let time = Timestamp(999_999 << 40 | 0xc);
        assert_eq!((time.seconds(), time.micros()), (12, 999_999));
    }
}
