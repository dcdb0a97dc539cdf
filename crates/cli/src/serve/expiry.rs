//! Until when the server's certificate is valid: told as a metric, and warned of 30 days ahead.
//!
//! Warnings come when certificates are read (at the start and by a reload) and then once a day, from the thread that waits
//! for signals. A server has one certificate, so this is one place of the process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::process::ProcessFigure;
use crate::log::WARNING;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long before the end there are warnings.
const AHEAD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Seconds since 1970; 0 where there is no certificate.
static UNTIL: AtomicU64 = AtomicU64::new(0);

/// The server's certificate is now one that is valid until this moment. Warns where that is near.
pub fn set(until: Option<SystemTime>) {
    let since = until.and_then(|until| until.duration_since(SystemTime::UNIX_EPOCH).ok());
    UNTIL.store(since.map_or(0, |since| since.as_secs()), Ordering::Relaxed);
    warn_ahead();
}

/// Warns where the certificate expires soon, or has expired.
pub fn warn_ahead() {
    let Some(until) = until() else { return };
    if let Some(days) = days_to_warn_of(until, SystemTime::now()) {
        let when = match days {
            ..0 => "has expired, and clients refuse it".to_owned(),
            0 => "expires in less than a day".to_owned(),
            1 => "expires in 1 day".to_owned(),
            days => format!("expires in {days} days"),
        };
        tracing::warn!(
            target: WARNING,
            event = "certificate_expires",
            days,
            "the server's certificate {when}; renew it (`cryptline certs DIR renew`), then have it read again (SIGHUP)"
        );
    }
}

/// For metrics, where there is a certificate.
pub fn figure() -> Option<ProcessFigure> {
    let seconds = until()?.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64();
    Some(ProcessFigure {
        name: "cryptline_certificate_expiry_timestamp_seconds",
        kind: "gauge",
        help: "When the server's TLS certificate expires, in seconds since 1970.",
        value: seconds,
    })
}

fn until() -> Option<SystemTime> {
    let seconds = UNTIL.load(Ordering::Relaxed);
    (seconds > 0).then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Whole days that are left, where they are few; -1 for none.
fn days_to_warn_of(until: SystemTime, now: SystemTime) -> Option<i64> {
    match until.duration_since(now) {
        Ok(left) if left > AHEAD => None,
        Ok(left) => i64::try_from(left.as_secs() / DAY.as_secs()).ok(),
        Err(_) => Some(-1),
    }
}

/// A clock for what is done once a day.
#[derive(Debug)]
pub struct Daily(Instant);

impl Daily {
    /// Due a day after `now`.
    pub fn since(now: Instant) -> Self {
        Self(now + DAY)
    }

    /// Time that is left at `now`.
    pub fn left(&self, now: Instant) -> Duration {
        self.0.saturating_duration_since(now)
    }

    /// Tells if the day is over at `now`, once; the next one begins.
    pub fn is_over(&mut self, now: Instant) -> bool {
        let is_over = now >= self.0;
        if is_over {
            *self = Self::since(now);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_begin_thirty_days_ahead_and_do_not_end() {
        let now = SystemTime::UNIX_EPOCH + 20_000 * DAY;
        let days = |until: SystemTime| days_to_warn_of(until, now);
        assert_eq!(days(now + AHEAD + Duration::from_secs(1)), None);
        assert_eq!(days(now + AHEAD), Some(30));
        assert_eq!(days(now + DAY + DAY / 2), Some(1));
        assert_eq!(days(now + DAY / 2), Some(0));
        assert_eq!(days(now - DAY), Some(-1));
    }

    #[test]
    fn a_day_is_over_once() {
        let start = Instant::now();
        let mut daily = Daily::since(start);
        assert!(!daily.is_over(start + DAY / 2));
        assert_eq!(daily.left(start + DAY / 2), DAY / 2);
        assert!(daily.is_over(start + DAY * 3) && !daily.is_over(start + DAY * 3));
        assert_eq!(daily.left(start + DAY * 3), DAY);
    }
}
