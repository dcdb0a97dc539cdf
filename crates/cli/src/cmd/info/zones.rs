//! `info --zones`: what each zone of a zoned device is and holds, as `blkzone report` lists it, and as JSON.

use std::fmt::Write as _;
use std::path::Path;

use cryptline::Open;
use cryptline::engine::{Zone, ZoneCondition, ZoneType};
use serde_json::{Value, json};

use crate::CliError;
use crate::output::print_report;

/// Bytes in a sector.
const SECTOR: u64 = 512;

/// Prints the zones.
///
/// # Errors
/// Exit code 1 for what has no zones, 4 for a device that cannot be opened or does not report, 5 for
/// one that is in use.
pub fn run(target: &Path, as_json: bool) -> Result<(), CliError> {
    let (gate, warnings) = Open::new(target).read_only(true).base()?;
    crate::output::warn_of(&warnings);
    let zones = cryptline::zones(&gate).map_err(|error| CliError::from(error).of(&target.display().to_string()))?;
    let report = json!({ "zones": zones.iter().map(json_of).collect::<Value>() });
    print_report(as_json, &report, &zones.iter().map(line).collect::<String>())
}

/// As `blkzone report` has it.
fn line(zone: &Zone) -> String {
    let Zone { start, length, capacity, write_pointer, kind, condition } = zone;
    // blkzone shows no write pointer where there is none.
    let written = match kind {
        ZoneType::Conventional => 0,
        _ => write_pointer.saturating_sub(*start),
    };
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "  start: {:#011x}, len {:#08x}, cap {:#08x}, wptr {:#08x} reset:0 non-seq:0, zcond:{:2}({}) [type: {}({})]",
        start / SECTOR,
        length / SECTOR,
        capacity / SECTOR,
        written / SECTOR,
        condition.code(),
        short(*condition),
        kind.code(),
        match kind {
            ZoneType::Conventional => "CONVENTIONAL",
            ZoneType::SequentialRequired => "SEQ_WRITE_REQUIRED",
            ZoneType::SequentialPreferred => "SEQ_WRITE_PREFERRED",
        },
    );
    text
}

/// blkzone's two letters.
fn short(condition: ZoneCondition) -> &'static str {
    match condition {
        ZoneCondition::NotWritePointer => "nw",
        ZoneCondition::Empty => "em",
        ZoneCondition::ImplicitOpen => "oi",
        ZoneCondition::ExplicitOpen => "oe",
        ZoneCondition::Closed => "cl",
        ZoneCondition::ReadOnly => "ro",
        ZoneCondition::Full => "fu",
        ZoneCondition::Offline => "of",
    }
}

/// Sectors from the start of the device. docs/zoned.md promises that the members stay.
fn json_of(zone: &Zone) -> Value {
    json!({
            "start": zone.start / SECTOR,
            "length": zone.length / SECTOR,
            "capacity": zone.capacity / SECTOR,
            "write_pointer": zone.write_pointer / SECTOR,
            "type": match zone.kind {
                ZoneType::Conventional => "conventional",
                ZoneType::SequentialRequired => "sequential-write-required",
                ZoneType::SequentialPreferred => "sequential-write-preferred",
            },
            "condition": match zone.condition {
                ZoneCondition::NotWritePointer => "not-write-pointer",
                ZoneCondition::Empty => "empty",
                ZoneCondition::ImplicitOpen => "implicit-open",
                ZoneCondition::ExplicitOpen => "explicit-open",
                ZoneCondition::Closed => "closed",
                ZoneCondition::ReadOnly => "read-only",
                ZoneCondition::Full => "full",
                ZoneCondition::Offline => "offline",
            },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: Zone = Zone {
        start: 64 << 20,
        length: 64 << 20,
        capacity: 48 << 20,
        write_pointer: (64 << 20) + 8192,
        kind: ZoneType::SequentialRequired,
        condition: ZoneCondition::ImplicitOpen,
    };

    #[test]
    fn table_is_that_of_blkzone() {
        assert_eq!(
            line(&ZONE),
            "  start: 0x000020000, len 0x020000, cap 0x018000, wptr 0x000010 reset:0 non-seq:0, zcond: 2(oi) [type: 2(SEQ_WRITE_REQUIRED)]\n"
        );
    }

    #[test]
    fn json_counts_sectors_from_the_start_of_the_device() {
        let expected = json!({
            "start": 131_072,
            "length": 131_072,
            "capacity": 98_304,
            "write_pointer": 131_088,
            "type": "sequential-write-required",
            "condition": "implicit-open",
        });
        assert_eq!(json_of(&ZONE), expected);
    }
}
