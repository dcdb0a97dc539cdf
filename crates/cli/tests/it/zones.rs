//! `zones`: what is listed, as text and as JSON, and what is refused.

use crate::common::*;
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, ZoneAction};
use serde_json::{Value, json};

const ZONE: u64 = 4 << 20;
const SECTORS: u64 = ZONE / 512;

/// Zones in the conditions that a volume can bring them into.
fn written(folder: &Folder) -> String {
    let image = folder.luks2();
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.set_len(8 * ZONE).unwrap();
    let target = format!("zoned:{},zone-size=4M,zone-capacity=3M,conventional=4", image.display());
    let key = format!("--key-file={}", folder.key().display());
    let volume = open(&[&target, &key]);
    let mut disk = Blocking::new(volume.gate(), BackendChoice::Auto).unwrap();
    disk.write_at(0, &[1; 8192], false).unwrap();
    disk.zone(ZONE, ZoneAction::Finish).unwrap();
    disk.write_at(2 * ZONE, &[1; 4096], false).unwrap();
    disk.zone(2 * ZONE, ZoneAction::Close).unwrap();
    disk.flush().unwrap();
    target
}

fn zones(target: &str) -> Vec<Value> {
    let text = cryptline(["zones", "--json", target]).success().stdout_text();
    let json: Value = serde_json::from_str(&text).expect("JSON");
    json["zones"].as_array().expect("an array").clone()
}

#[test]
fn json_has_each_zone_in_sectors() {
    let folder = Folder::new();
    let target = written(&folder);
    let zones = zones(&target);
    assert_eq!(zones.len(), 8);
    let zone = |index: u64, capacity, written, kind: &str, condition: &str| {
        json!({
            "start": index * SECTORS,
            "length": SECTORS,
            "capacity": capacity,
            "write_pointer": index * SECTORS + written,
            "type": kind,
            "condition": condition,
        })
    };
    let capacity = (3 << 20) / 512;
    let sequential = "sequential-write-required";
    let conventional = zone(0, SECTORS, SECTORS, "conventional", "not-write-pointer");
    assert_eq!(zones[0], conventional);
    // Open zones are closed by the end of the program that opened them.
    assert_eq!(zones[4], zone(4, capacity, 16, sequential, "closed"));
    assert_eq!(zones[5], zone(5, capacity, SECTORS, sequential, "full"));
    assert_eq!(zones[6], zone(6, capacity, 8, sequential, "closed"));
    assert_eq!(zones[7], zone(7, capacity, 0, sequential, "empty"));
}

#[test]
fn table_has_a_line_for_each_zone_as_blkzone_prints_it() {
    let folder = Folder::new();
    let target = written(&folder);
    let text = cryptline(["zones", &target]).success().stdout_text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 8);
    assert_eq!(
        lines[4],
        "  start: 0x000008000, len 0x002000, cap 0x001800, wptr 0x000010 reset:0 non-seq:0, zcond: 4(cl) [type: 2(SEQ_WRITE_REQUIRED)]"
    );
    assert!(lines[0].ends_with("zcond: 0(nw) [type: 1(CONVENTIONAL)]"));
}
