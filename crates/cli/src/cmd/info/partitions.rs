//! The report of a disk with partitions.

use std::fmt::Write as _;

use cryptline::PartitionTable;
use cryptline::partition::Partition;
use serde::Serialize;

use crate::error::on_one_line;
use crate::size::human;

/// A disk with a partition table. Its members are those of the JSON, which docs/info-json.md describes.
#[derive(Serialize)]
pub struct Disk {
    /// The target as given.
    target: String,
    /// "GPT" or "MBR".
    kind: String,
    /// Bytes of the target.
    device_size: u64,
    /// Bytes in a sector.
    sector_size: u32,
    /// What is wrong with the table, though it can be used.
    damage: Option<String>,
    /// The partitions, in the order of the table.
    partitions: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    number: u32,
    label: Option<String>,
    uuid: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    start: u64,
    size: u64,
    luks: bool,
    /// Why it cannot be opened.
    refused: Option<String>,
}

impl Disk {
    /// What `table`, of `target`, says.
    pub fn new(target: &str, table: &PartitionTable) -> Self {
        let part = |one: &Partition| Part {
            number: one.number,
            label: one.label.clone(),
            uuid: one.uuid.clone(),
            kind: one.kind.clone(),
            start: one.start,
            size: one.size,
            luks: one.is_luks,
            refused: table.judge(one).err(),
        };
        Self {
            target: target.to_owned(),
            kind: table.kind.to_string(),
            device_size: table.disk_size,
            sector_size: table.sector_size,
            damage: table.damage.clone(),
            partitions: table.partitions.iter().map(part).collect(),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let (kind, size) = (&self.kind, human(self.device_size));
        let sector = self.sector_size;
        let target = on_one_line(&self.target);
        let mut text = format!("{target}: {kind} partition table, {size}, {sector}-byte sectors\n");
        if let Some(damage) = &self.damage {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  Damaged       {}", on_one_line(damage));
        }
        for part in &self.partitions {
            part.write(&mut text);
        }
        text
    }
}

impl Part {
    fn write(&self, text: &mut String) {
        let label = self.label.as_deref().unwrap_or_default();
        let lines = [
            ("Label", label.to_owned()),
            ("Size", format!("{} ({} bytes)", human(self.size), self.size)),
            ("Start", format!("byte {}", self.start)),
            ("Type", self.kind.clone()),
            ("UUID", self.uuid.clone().unwrap_or_default()),
            ("Holds", if self.luks { "a LUKS header" } else { "" }.to_owned()),
            ("Refused", self.refused.clone().unwrap_or_default()),
        ];
        let _ = writeln!(text, "\nPartition {}", self.number);
        for (name, value) in lines {
            if !value.is_empty() {
                let _ = writeln!(text, "  {name:14}{}", on_one_line(&value));
            }
        }
    }
}
