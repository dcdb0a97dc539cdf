//! The report of a disk with partitions.

use std::fmt::Write as _;

use cryptline::PartitionTable;
use cryptline::partition::Partition;
use serde_json::{Value, json};

use crate::error::on_one_line;
use crate::size::human;

/// The JSON, which docs/info-json.md describes.
pub fn json_of(target: &str, table: &PartitionTable) -> Value {
    let part = |one: &Partition| {
        json!({
            "number": one.number,
            "label": one.label,
            "uuid": one.uuid,
            "type": one.kind,
            "start": one.start,
            "size": one.size,
            "luks": one.is_luks,
            "contents": one.holds.as_ref().map(ToString::to_string),
            "refused": table.judge(one).err(),
        })
    };
    json!({
        "target": target,
        "kind": table.kind.to_string(),
        "device_size": table.disk_size,
        "sector_size": table.sector_size,
        "other_sector_size": table.other_sector_size,
        "damage": table.damage,
        "partitions": table.partitions.iter().map(part).collect::<Value>(),
    })
}

fn contents(part: &Partition) -> String {
    if part.is_luks {
        "a LUKS header".to_owned()
    } else {
        part.holds.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

/// The same for people.
pub fn text_of(target: &str, table: &PartitionTable) -> String {
    let (kind, size, sector) = (table.kind, human(table.disk_size), table.sector_size);
    let other = table.other_sector_size.map(|other| format!(" or {other}")).unwrap_or_default();
    let mut text = format!("{}: {kind} partition table, {size}, {sector}{other}-byte sectors\n", on_one_line(target));
    if let Some(damage) = &table.damage {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  Damaged       {}", on_one_line(damage));
    }
    for part in &table.partitions {
        let _ = writeln!(text, "\nPartition {}", part.number);
        for (name, value) in [
            ("Label", part.label.clone().unwrap_or_default()),
            ("Size", format!("{} ({} bytes)", human(part.size), part.size)),
            ("Start", format!("byte {}", part.start)),
            ("Type", part.kind.clone()),
            ("UUID", part.uuid.clone().unwrap_or_default()),
            ("Contents", contents(part)),
            ("Refused", table.judge(part).err().unwrap_or_default()),
        ] {
            if !value.is_empty() {
                let _ = writeln!(text, "  {name:14}{}", on_one_line(&value));
            }
        }
    }
    text
}
