//! A time as people and programs read it (RFC 3339, UTC, milliseconds).

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 24 * 60 * 60;
/// Years begin in March here, so that the day that some of them lack is their last: days from then to 1970.
const BEFORE_1970: u64 = 719_468;
/// Days of 400 years.
const CYCLE: u64 = 146_097;

/// Such as `2026-11-23T23:16:02.123Z`.
pub fn utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, milliseconds) = (since.as_secs(), since.subsec_millis());
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute) = (seconds % DAY / 3600, seconds % 3600 / 60);
    let second = seconds % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// The day so many days after the first of January 1970, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + BEFORE_1970;
    let (cycle, day) = (days / CYCLE, days % CYCLE);
    // Without the days of leap years.
    let year = (day - day / 1460 + day / 36_524 - day / (CYCLE - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, five months have 153 days.
    let month = (5 * day + 2) / 153;
    let first = (153 * month + 2) / 5;
    let year = year + 400 * cycle;
    match month {
        0..10 => (year, month + 3, day - first + 1),
        _ => (year + 1, month - 9, day - first + 1),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (1_735_689_600, "2025-01-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        let later = Duration::from_millis(1_795_475_762_007);
        assert_eq!(utc(UNIX_EPOCH + later), "2026-11-23T23:16:02.007Z");
    }
}
