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
fn nbd_has_no_zones_and_refuses_them() {
    let folder = Folder::new();
    let target = target(&folder);
    let run = folder.serve(target.as_ref());
    refused(run, 4, "NBD has no zones");
    let ram = "zoned:ram:64M,zone-size=4M";
    refused(cryptline(["serve", ram, "--run", "true"]), 4, "NBD has no zones");
}

#[test]
fn zones_that_can_not_be_are_refused_in_one_line_and_nothing_is_written() {
    let folder = Folder::new();
    let image = folder.luks2();
    let before = fs::read(&image).unwrap();
    let refused_with = |options: &str, code: i32, text: &str| {
        let target = format!("zoned:{}{options}", image.display());
        refused(folder.check(target.as_ref()), code, text);
    };
    refused_with("", 4, "zone-size=SIZE");
    refused_with(",zone-size=3M", 4, "power of two");
    refused_with(",zone-size=8M", 4, "not whole zones");
    refused_with(",zone-size=4M,zone-capacity=5M", 4, "above the zone size");
    refused_with(",zone-size=4M,conventional=5", 4, "give fewer");
    refused_with(",zone-size=4M,granularity=100", 4, "granularity=512");
    refused_with(",zone-size=4M,zones=5", 1, "the keys are");
    refused_with(",zone-size=4M,max-open=x", 1, "not a count");
    // The header is in the way of sequential zones.
    refused_with(",zone-size=4M", 4, "give an empty file");
    let state = format!("{}.zones", image.display());
    assert!(!std::path::Path::new(&state).exists());
    assert!(fs::read(&image).unwrap() == before);
    let small = format!("zoned:{},zone-size=4M,conventional=4,granularity=512", image.display());
    refused(folder.serve(small.as_ref()), 4, "sector size of 512");
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
