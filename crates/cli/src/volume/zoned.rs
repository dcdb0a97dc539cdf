//! `zoned:PATH,zone-size=64M,…` and `zoned:ram:SIZE,zone-size=64M,…`: emulated zoned devices.
//!
//! ```text
//! zone-size=SIZE       bytes from zone to zone, a power of two; a new device needs it
//! zone-capacity=SIZE   what can be used of a sequential zone; default: all of it
//! conventional=N       the first N zones are written anywhere; default: 0
//! max-open=N           zones open at a time; default: any number
//! max-active=N         zones open or closed at a time; default: any number
//! granularity=BYTES    unit of writes to sequential zones; default: 4096
//! ```

use std::path::Path;

use cryptline_engine::Gate;
use cryptline_engine::base::{DirectMode, RamDevice, ZoneOptions, ZonedDevice, ZonedFile};
use cryptline_engine::zone::ZoneLayout;

use super::mapped::Mapped;
use crate::CliError;
use crate::size::{human, parse, parse_disk};

const KEYS: &str = "zone-size, zone-capacity, conventional, max-open, max-active, granularity";

/// Whether `target` is a zoned device in memory, which is empty each time.
pub fn is_ram(target: &str) -> bool {
    target.starts_with("zoned:ram:")
}

/// Opens what follows `zoned:`.
///
/// # Errors
/// Exit code 1 for options that do not parse, 4 for zones that can not be, a state that is damaged
/// or missing, 5 for what is in use.
pub fn open(text: &str, read_only: bool, direct: DirectMode) -> Result<Mapped, CliError> {
    let (place, options) = text.split_once(',').unwrap_or((text, ""));
    let options = parse_options(options)
        .map_err(|why| CliError::parameters(format!("zoned:{text}: {why}")))?;
    if let Some(size) = place.strip_prefix("ram:") {
        return in_memory(text, size, &options);
    }
    if place.is_empty() {
        return Err(CliError::parameters(
            "zoned: names no file; give zoned:PATH,zone-size=SIZE or zoned:ram:SIZE,zone-size=SIZE",
        ));
    }
    let opened = ZonedFile::open(Path::new(place), &options, read_only, direct)?;
    Ok(Mapped {
        data: Vec::new(),
        how: describe(&opened.layout),
        warnings: opened.warnings,
        gate: Gate::new(opened.device),
    })
}

fn in_memory(text: &str, size: &str, options: &ZoneOptions) -> Result<Mapped, CliError> {
    let wrong = |why: String| CliError::parameters(format!("zoned:{text}: {why}"));
    let size = parse_disk(size).map_err(wrong)?;
    let layout = options
        .layout(size)
        .map_err(|error| CliError::device(format!("zoned:{text}: {error}")))?;
    let memory = Gate::new(RamDevice::new(size)?);
    Ok(Mapped {
        data: Vec::new(),
        how: describe(&layout),
        warnings: Vec::new(),
        gate: Gate::new(ZonedDevice::in_memory(memory, layout)?),
    })
}

fn parse_options(text: &str) -> Result<ZoneOptions, String> {
    let mut options = ZoneOptions::default();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| format!("'{word}' is not KEY=VALUE; the keys are {KEYS}"))?;
        let count = || {
            let parsed = value.parse::<u32>();
            parsed.map_err(|_| format!("{key}={value} is not a count"))
        };
        let is_new = match key {
            "zone-size" => options.zone_size.replace(parse(value)?).is_none(),
            "zone-capacity" => options.capacity.replace(parse(value)?).is_none(),
            "conventional" => options.conventional.replace(count()?).is_none(),
            "max-open" => options.max_open.replace(count()?).is_none(),
            "max-active" => options.max_active.replace(count()?).is_none(),
            "granularity" => {
                let bytes = u32::try_from(parse(value)?);
                let bytes = bytes.map_err(|_| format!("granularity={value} is too large"))?;
                options.write_granularity.replace(bytes).is_none()
            }
            _ => return Err(format!("unknown '{key}'; the keys are {KEYS}")),
        };
        if !is_new {
            return Err(format!("{key} is given twice; give it once"));
        }
    }
    Ok(options)
}

fn describe(layout: &ZoneLayout) -> String {
    let conventional = match layout.conventional {
        0 => String::new(),
        count => format!(", {count} of them conventional"),
    };
    format!(
        "{} emulated zones of {}{conventional}",
        layout.count,
        human(layout.zone_size)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_parse_or_say_what_is_wrong() {
        let options = parse_options(
            "zone-size=64M,zone-capacity=48M,conventional=2,max-open=3,max-active=4,granularity=512",
        );
        let expected = ZoneOptions {
            zone_size: Some(64 << 20),
            capacity: Some(48 << 20),
            conventional: Some(2),
            max_open: Some(3),
            max_active: Some(4),
            write_granularity: Some(512),
        };
        assert_eq!(options, Ok(expected));
        assert_eq!(parse_options(""), Ok(ZoneOptions::default()));
        for (text, what) in [
            ("zone-size", "KEY=VALUE"),
            ("zone-size=x", "not a size"),
            ("conventional=-1", "not a count"),
            ("max-open=99999999999", "not a count"),
            ("granularity=8G", "too large"),
            ("zones=4", "the keys are"),
            ("max-open=1,max-open=2", "given twice"),
        ] {
            let error = parse_options(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn zones_in_memory_are_made_or_refused_in_one_line() {
        let zoned = |text: &str| open(text, false, DirectMode::Auto);
        let made = zoned("ram:64M,zone-size=4M,conventional=2").unwrap();
        assert_eq!(
            made.how,
            "16 emulated zones of 4 MiB, 2 of them conventional"
        );
        assert!(made.gate.geometry().zones.is_some());
        let refused = |text: &str| match zoned(text) {
            Ok(_) => panic!("{text} was made"),
            Err(error) => (error.exit_code(), error.to_string()),
        };
        assert_eq!(refused("ram:64M").0, 4);
        assert_eq!(refused("ram:64M,zone-size=3M").0, 4);
        assert_eq!(refused("ram:65M,zone-size=4M").0, 4);
        assert_eq!(refused("ram:64M,zone-size=4M,zone-capacity=5M").0, 4);
        assert_eq!(refused("ram:64M,zone-size=4M,what=5").0, 1);
        assert_eq!(refused("ram:x,zone-size=4M").0, 1);
        assert_eq!(refused(",zone-size=4M").0, 1);
        assert!(!refused("ram:64M,zone-size=3M").1.contains('\n'));
    }
}
