//! Description of what was opened, and of what its header says, as JSON: for programs in other languages. No secrets
//! are in it.

use serde_json::{Map, Value, json};

use crate::partition::{Partition, PartitionTable, TableKind};
use crate::{Info, Inspection, Volume};

impl Info {
    /// Describes what was opened, as one JSON object. New members may come; those there are stay.
    #[must_use]
    pub fn to_json(&self) -> String {
        Value::Object(self.members()).to_string()
    }

    fn members(&self) -> Map<String, Value> {
        let all = json!({
            "source": self.source,
            "kind": self.kind.to_string(),
            "cipher": self.cipher,
            "key_bits": self.key_bits,
            "cipher_kernel": self.cipher_kernel,
            "sector_size": self.sector_size,
            "logical_block": self.logical_block,
            "size": self.size,
            "read_only": self.read_only,
            "base": self.base.to_string(),
            "discards": self.discards,
            "dispatch": self.dispatch_text(),
            "identity": self.identity,
        });
        match all {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }
}

impl Volume {
    /// Describes what was opened and what the user should know, as one JSON object: [`Info::to_json`] with `warnings`,
    /// and the size as it is now.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut members = self.info().members();
        let warnings = self.warnings().iter().map(ToString::to_string);
        members.insert("size".to_owned(), self.size().into());
        members.insert("warnings".to_owned(), warnings.collect());
        Value::Object(members).to_string()
    }
}

impl Inspection {
    /// Returns what the header says, as one JSON object: `name`, `kind`, `device_size`, `data_size` (null where the
    /// volume cannot be opened), and the members of [`luks::Info`](cryptline_luks::Info): `keyslots`, `tokens` and so
    /// on.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut members = Map::new();
        members.insert("name".to_owned(), self.name.clone().into());
        members.insert("kind".to_owned(), self.kind.to_string().into());
        members.insert("detached".to_owned(), self.detached.into());
        members.insert("device_size".to_owned(), self.device_size.into());
        members.insert("data_size".to_owned(), json!(self.data_size.as_ref().ok()));
        if let Ok(Value::Object(header)) = serde_json::to_value(self.header.info()) {
            members.extend(header);
        }
        Value::Object(members).to_string()
    }
}

impl PartitionTable {
    /// Returns the table as one JSON object: `kind` (`gpt` or `mbr`), `device_size`, `sector_size`, `damage` (null where it is
    /// sound), and `partitions`, each with `number`, `offset`, `length` (in bytes), `type`, `label`, `uuid`, `luks` and
    /// `contents` (anything else that is known to be there, or null).
    #[must_use]
    pub fn to_json(&self) -> String {
        let kind = match self.kind {
            TableKind::Gpt => "gpt",
            TableKind::Mbr => "mbr",
        };
        let partition = |it: &Partition| {
            json!({
                "number": it.number, "offset": it.start, "length": it.size, "type": it.kind, "label": it.label,
                "uuid": it.uuid, "luks": it.is_luks, "contents": it.holds.as_ref().map(ToString::to_string),
            })
        };
        let partitions: Vec<_> = self.partitions.iter().map(partition).collect();
        let members = json!({
            "kind": kind, "device_size": self.disk_size, "sector_size": self.sector_size, "damage": self.damage,
            "partitions": partitions,
        });
        members.to_string()
    }
}
