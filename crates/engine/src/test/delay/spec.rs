//! The text form of a slow medium.
//!
//! ```text
//! read=100us                        each read takes 100 µs
//! write=20us..40us                  uniform between the two
//! flush=1ms~200us                   normal: mean 1 ms, standard deviation 200 µs
//! discard=50us                      discards and write-zeroes
//! parallel=32                       so many at a time; the rest wait in order of submission
//! seek=4ms                          a disk: so much more where the last transfer did not end
//! seek=1ms..8ms                     the same by distance: next door, to the whole disk
//! rate=200M                         bytes per second over the medium's cable
//! seed=7                            another sequence of random times
//! ```
//!
//! Separated by commas. Times in ns, us, ms or s; an operation that is not named takes none.

use std::fmt;
use std::str::FromStr;

use crate::units;

/// A minute: longer times are slips of the pen.
const LONGEST_NS: u64 = 60_000_000_000;
const PARALLEL_MAX: usize = 1024;
/// Bytes per second; a medium slower than this would not end a request in reasonable time.
const RATE_MIN: u64 = 64 * 1024;

/// How slow a medium is; see the module's documentation for the text form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelaySpec {
    pub(super) read: SpecTime,
    pub(super) write: SpecTime,
    pub(super) flush: SpecTime,
    /// Discard and write-zeroes.
    pub(super) discard: SpecTime,
    /// Nanoseconds: to the next sector, and across the whole device.
    pub(super) seek: Option<(u64, u64)>,
    /// Operations at a time; `None` for any number.
    pub(super) parallel: Option<usize>,
    /// Bytes per second.
    pub(super) rate: Option<u64>,
    pub(super) seed: u64,
    /// As it was written.
    text: String,
}

/// How long an operation takes, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpecTime {
    Fixed(u64),
    Uniform { least: u64, most: u64 },
    Normal { mean: u64, deviation: u64 },
}

impl SpecTime {
    const NONE: Self = Self::Fixed(0);
}

impl FromStr for DelaySpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut spec = Self {
            read: SpecTime::NONE,
            write: SpecTime::NONE,
            flush: SpecTime::NONE,
            discard: SpecTime::NONE,
            seek: None,
            parallel: None,
            rate: None,
            seed: 0,
            text: text.to_owned(),
        };
        if text.is_empty() {
            return Err("say what takes how long, such as read=100us,write=20us..40us".into());
        }
        let mut seen: Vec<&str> = Vec::new();
        for word in text.split(',') {
            let (key, value) =
                word.split_once('=').ok_or_else(|| format!("{} is not KEY=VALUE, such as read=100us", quoted(word)))?;
            if seen.contains(&key) {
                return Err(format!("{key} is given twice"));
            }
            seen.push(key);
            spec.set(key, value)?;
        }
        Ok(spec)
    }
}

impl DelaySpec {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "read" => self.read = parse_time(value)?,
            "write" => self.write = parse_time(value)?,
            "flush" => self.flush = parse_time(value)?,
            "discard" => self.discard = parse_time(value)?,
            "seek" => {
                self.seek = Some(match parse_time(value)? {
                    SpecTime::Fixed(time) => (time, time),
                    SpecTime::Uniform { least, most } => (least, most),
                    SpecTime::Normal { .. } => {
                        return Err(format!("seek={value}: a seek takes one time, or by distance, such as 1ms..8ms"));
                    }
                });
            }
            "parallel" => {
                let count = value.parse::<usize>().ok();
                let count = count.filter(|count| (1..=PARALLEL_MAX).contains(count));
                self.parallel =
                    Some(count.ok_or_else(|| format!("parallel={}: use 1 to {PARALLEL_MAX}", brief(value)))?);
            }
            "rate" => self.rate = Some(parse_rate(value)?),
            "seed" => {
                self.seed = value.parse().map_err(|_| format!("seed={}: use a whole number", brief(value)))?;
            }
            other => {
                return Err(format!(
                    "unknown {}: read, write, flush, discard, seek, parallel, rate and seed are known",
                    quoted(other)
                ));
            }
        }
        Ok(())
    }
}

/// As it was written.
impl fmt::Display for DelaySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn parse_time(text: &str) -> Result<SpecTime, String> {
    if let Some((least, most)) = text.split_once("..") {
        let (least, most) = (nanoseconds(least)?, nanoseconds(most)?);
        return if least <= most {
            Ok(SpecTime::Uniform { least, most })
        } else {
            Err(format!("{text} ends before it begins; the shorter time comes first"))
        };
    }
    if let Some((mean, deviation)) = text.split_once('~') {
        return Ok(SpecTime::Normal { mean: nanoseconds(mean)?, deviation: nanoseconds(deviation)? });
    }
    nanoseconds(text).map(SpecTime::Fixed)
}

fn nanoseconds(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "" if number == "0" => 1,
        _ => 0,
    };
    if digits == 0 || scale == 0 {
        return Err(format!(
            "{} is not a time; write a whole number with ns, us, ms or s, such as 100us",
            quoted(text)
        ));
    }
    let time = number.parse::<u64>().ok();
    let time = time.and_then(|number| number.checked_mul(scale));
    time.filter(|&time| time <= LONGEST_NS)
        .ok_or_else(|| format!("{} is longer than 60s, the longest time", brief(text)))
}

/// Bytes per second, in powers of 1024 as all sizes.
fn parse_rate(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number = number.parse::<u64>().ok();
    let rate = number.zip(units::bytes_in(unit)).and_then(|(number, scale)| number.checked_mul(scale));
    rate.filter(|&rate| rate >= RATE_MIN)
        .ok_or_else(|| format!("rate={}: use bytes per second, from 64K, such as 200M", brief(text)))
}

fn quoted(text: &str) -> String {
    format!("{:?}", brief(text))
}

/// Enough of the user's text to find it again.
fn brief(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> DelaySpec {
        text.parse().unwrap()
    }

    #[test]
    fn each_word_is_understood() {
        let spec = parse("read=100us,write=20us..40us,flush=1ms~200us,discard=0,parallel=32,seed=7");
        assert_eq!(spec.read, SpecTime::Fixed(100_000));
        let (least, most) = (20_000, 40_000);
        assert_eq!(spec.write, SpecTime::Uniform { least, most });
        let (mean, deviation) = (1_000_000, 200_000);
        assert_eq!(spec.flush, SpecTime::Normal { mean, deviation });
        assert_eq!(spec.discard, SpecTime::NONE);
        assert_eq!((spec.parallel, spec.seed), (Some(32), 7));
        let spec = parse("seek=4ms,rate=200M");
        assert_eq!((spec.seek, spec.rate), (Some((4_000_000, 4_000_000)), Some(200 << 20)));
        assert_eq!(spec.read, SpecTime::NONE);
        assert_eq!(parse("seek=1ms..8ms").seek, Some((1_000_000, 8_000_000)));
        assert_eq!(spec.to_string(), "seek=4ms,rate=200M");
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (wrong, teaches) in [
            ("", "read=100us"),
            ("read", "KEY=VALUE"),
            ("read=1us,", "KEY=VALUE"),
            ("read=100", "ns, us, ms or s"),
            ("read=us", "ns, us, ms or s"),
            ("read=-1us", "ns, us, ms or s"),
            ("read=1.5ms", "whole number"),
            ("read=61s", "60s"),
            ("read=99999999999999999999s", "60s"),
            ("read=40us..20us", "shorter time comes first"),
            ("read=1us..", "ns, us, ms or s"),
            ("read=1us~", "ns, us, ms or s"),
            ("read=1us,read=2us", "twice"),
            ("sync=1us", "flush"),
            ("parallel=0", "1 to 1024"),
            ("parallel=1025", "1 to 1024"),
            ("seek=4ms~1ms", "by distance"),
            ("rate=0", "bytes per second"),
            ("rate=200X", "bytes per second"),
            ("rate=M", "bytes per second"),
            ("seed=x", "whole number"),
        ] {
            let message = wrong.parse::<DelaySpec>().expect_err(wrong);
            assert!(message.contains(teaches), "{wrong}: {message}");
            assert!(!message.contains('\n'));
        }
    }

    #[test]
    fn long_nonsense_is_not_repeated_whole() {
        let nonsense = "x".repeat(100_000);
        for text in [nonsense.clone(), format!("read={nonsense}"), format!("{nonsense}=1us")] {
            assert!(text.parse::<DelaySpec>().unwrap_err().len() < 200);
        }
    }
}
