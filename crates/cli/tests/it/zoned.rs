//! `zoned:` targets: LUKS, plain and random-key volumes on zones, and what is refused.

use std::fs;

use crate::common::*;
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Fault, Zone, ZoneAction, ZoneCondition};

const ZONE: u64 = 4 << 20;

/// A LUKS2 volume whose header is in four conventional zones, and its data in one that is not.
fn target(folder: &Folder) -> String {
    let image = folder.luks2();
    format!("zoned:{},zone-size=4M,conventional=4", image.display())
}

fn blocking(volume: &cryptline::Volume) -> Blocking {
    Blocking::new(volume.gate(), BackendChoice::Auto).unwrap()
}

#[test]
fn luks_volume_on_zones_keeps_its_write_pointer_from_one_opening_to_the_next() {
    let folder = Folder::new();
    let target = target(&folder);
    let key = format!("--key-file={}", folder.key().display());
    let volume = open(&[&target, &key]);
    assert_eq!(volume.gate().geometry().size, ZONE);
    let mut disk = blocking(&volume);
    disk.write_at(0, &[1; 8192], false).unwrap();
    assert_eq!(disk.zone_append(0, &[2; 4096], true), Ok(8192));
    assert_eq!(disk.write_at(0, &[3; 4096], false), Err(Fault::WritePointer));
    drop((disk, volume));
    // The options are in the state file now.
    let path = target.split(',').next().unwrap();
    let volume = open(&[path, &key]);
    let mut disk = blocking(&volume);
    let mut read = vec![0; 12288];
    disk.read_at(0, &mut read).unwrap();
    assert!(read[..8192].iter().all(|byte| *byte == 1));
    assert!(read[8192..].iter().all(|byte| *byte == 2));
    let mut zone = [Zone::default()];
    assert_eq!(volume.gate().report_zones(0, &mut zone), Ok(1));
    assert_eq!(zone[0].write_pointer, 12288);
    assert_eq!(zone[0].condition, ZoneCondition::Closed);
    disk.zone(0, ZoneAction::Reset).unwrap();
    disk.write_at(0, &[4; 4096], false).unwrap();
}

#[test]
fn zones_in_memory_are_a_volume_under_a_random_key() {
    let volume = open(&["zoned:ram:64M,zone-size=4M,conventional=2,max-open=3"]);
    let geometry = *volume.gate().geometry();
    assert_eq!(geometry.zones.map(|zones| zones.max_open), Some(3));
    let mut disk = blocking(&volume);
    disk.write_at(2 * ZONE, &[7; 65536], false).unwrap();
    disk.write_at(4096, &[8; 4096], false).unwrap();
    let mut read = vec![0; 65536];
    disk.read_at(2 * ZONE, &mut read).unwrap();
    assert!(read.iter().all(|byte| *byte == 7));
}

#[test]
fn queue_dispatch_is_used_for_reads_only_and_says_so() {
    let volume = open(&["zoned:ram:64M,zone-size=4M", "--dispatch=queue"]);
    assert!(warnings(&volume).iter().any(|line| line.contains("in order")));
    assert!(volume.info().dispatch_text().contains("write inline"));
}

#[test]
fn damaged_state_is_refused_and_can_be_read_only() {
    let folder = Folder::new();
    let target = target(&folder);
    let key = format!("--key-file={}", folder.key().display());
    drop(open(&[&target, &key]));
    let state = folder.path("luks2.img.zones");
    let mut bytes = fs::read(&state).unwrap();
    let half = bytes.len() / 2;
    (bytes[4096 + 40], bytes[half + 4096 + 40]) = (0xff, 0xff);
    fs::write(&state, &bytes).unwrap();
    refused(folder.serve(target.as_ref()), 4, "damaged in both copies");
    let volume = open(&[&target, &key, "--read-only"]);
    assert!(warnings(&volume).iter().any(|line| line.contains("damaged in both copies")));
    let mut zone = [Zone::default()];
    assert_eq!(volume.gate().report_zones(0, &mut zone), Ok(1));
    assert_eq!(zone[0].condition, ZoneCondition::ReadOnly);
}
