//! State that a zoned file keeps, and what it says when it can not.

use std::path::Path;

use cryptline_engine::base::{DirectMode, ZoneOptions, ZonedFile};
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Gate, OpenError, ZoneAction, ZoneCondition};
use tempfile::TempDir;

use crate::zoned::common::*;

fn folder() -> (TempDir, std::path::PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(u64::from(ZONES) * ZONE).unwrap();
    (folder, path)
}

fn open(path: &Path, options: &ZoneOptions) -> Result<Gate, OpenError> {
    let opened = ZonedFile::open(path, options, false, DirectMode::Auto)?;
    assert_eq!(opened.warnings, Vec::<String>::new());
    Ok(Gate::new(opened.device))
}

fn refusal(path: &Path, options: &ZoneOptions) -> String {
    match ZonedFile::open(path, options, false, DirectMode::Auto) {
        Ok(_) => panic!("opened"),
        Err(error) => {
            assert!(!error.is_busy(), "{error}");
            let text = error.to_string();
            assert!(!text.contains('\n'), "{text}");
            text
        }
    }
}

fn blocking(gate: &Gate) -> Blocking {
    Blocking::new(gate, BackendChoice::Auto).unwrap()
}

#[test]
fn zones_are_as_they_were_when_the_file_is_opened_again() {
    let (_folder, path) = folder();
    let gate = open(&path, &options()).unwrap();
    let mut disk = blocking(&gate);
    disk.write_at(start(0), &[1; 8192], false).unwrap();
    disk.write_at(start(2), &[2; 8192], false).unwrap();
    disk.write_at(start(3), &vec![3; 768 * 1024], false).unwrap();
    disk.write_at(start(4), &[4; 4096], true).unwrap();
    disk.zone(start(4), ZoneAction::Finish).unwrap();
    disk.write_at(start(5), &[5; 4096], false).unwrap();
    disk.zone(start(5), ZoneAction::Reset).unwrap();
    assert_eq!(disk.zone_append(start(6), &[6; 4096], true), Ok(start(6)));
    drop((disk, gate));
    // Without options: the state file has them all.
    let gate = open(&path, &ZoneOptions::default()).unwrap();
    let zones = report(&gate);
    let states: Vec<_> = (zones.iter()).map(|zone| (zone.condition, zone.write_pointer - zone.start)).collect();
    use ZoneCondition as C;
    assert_eq!(
        states,
        [
            (C::NotWritePointer, ZONE),
            (C::NotWritePointer, ZONE),
            (C::Closed, 8192),
            (C::Full, CAPACITY),
            (C::Full, ZONE),
            (C::Empty, 0),
            (C::Closed, 4096),
            (C::Empty, 0),
        ]
    );
    let mut disk = blocking(&gate);
    let mut read = vec![9; 16384];
    disk.read_at(start(2), &mut read).unwrap();
    assert!(read[..8192].iter().all(|byte| *byte == 2));
    assert!(read[8192..].iter().all(|byte| *byte == 0));
    disk.write_at(start(2) + 8192, &[7; 4096], false).unwrap();
    disk.read_at(start(0), &mut read[..8192]).unwrap();
    assert!(read[..8192].iter().all(|byte| *byte == 1));
}

#[test]
fn unflushed_writes_of_a_killed_process_are_behind_the_pointer_and_read_as_zeros() {
    let (_folder, path) = folder();
    let gate = open(&path, &options()).unwrap();
    let mut disk = blocking(&gate);
    disk.write_at(start(2), &[2; 4096], true).unwrap();
    disk.write_at(start(2) + 4096, &[3; 4096], false).unwrap();
    // As a kill leaves the files: copied while the disk is open.
    let (_other, copy) = folder();
    for end in ["", ".zones"] {
        let name = |path: &Path| format!("{}{end}", path.display());
        std::fs::copy(name(&path), name(&copy)).unwrap();
    }
    let gate = open(&copy, &ZoneOptions::default()).unwrap();
    assert_eq!(report(&gate)[2].write_pointer, start(2) + 4096);
    let mut read = vec![9; 8192];
    blocking(&gate).read_at(start(2), &mut read).unwrap();
    assert!(read[..4096].iter().all(|byte| *byte == 2));
    assert!(read[4096..].iter().all(|byte| *byte == 0));
}

#[test]
fn other_options_than_the_state_has_are_refused_by_name() {
    let (_folder, path) = folder();
    drop(open(&path, &options()).unwrap());
    drop(open(&path, &options()).unwrap());
    let with = |change: fn(&mut ZoneOptions)| {
        let mut options = options();
        change(&mut options);
        refusal(&path, &options)
    };
    assert!(with(|it| it.zone_size = Some(2 * ZONE)).contains("leave zone-size out"));
    assert!(with(|it| it.capacity = Some(ZONE)).contains("leave zone-capacity out"));
    assert!(with(|it| it.conventional = Some(1)).contains("leave conventional out"));
    assert!(with(|it| it.max_open = Some(3)).contains("leave max-open out"));
    assert!(with(|it| it.max_active = Some(3)).contains("leave max-active out"));
    assert!(with(|it| it.write_granularity = Some(512)).contains("leave granularity out"));
}

#[test]
fn file_with_data_and_no_state_is_left_alone() {
    let (_folder, path) = folder();
    drop(open(&path, &options()).unwrap());
    let mut disk = blocking(&open(&path, &options()).unwrap());
    disk.write_at(start(3), &[3; 4096], true).unwrap();
    drop(disk);
    std::fs::remove_file(format!("{}.zones", path.display())).unwrap();
    assert!(refusal(&path, &options()).contains("restore that"));
    assert!(!Path::new(&format!("{}.zones", path.display())).exists());
}

/// By the name that an unfinished state once had, and by a link of it to elsewhere.
#[test]
fn no_other_file_is_written_where_a_state_is_made() {
    let (folder, path) = folder();
    let [near, far] = ["disk.zones.new", "far"].map(|name| folder.path().join(name));
    std::fs::write(&near, "mine").unwrap();
    drop(open(&path, &options()).unwrap());
    assert_eq!(std::fs::read(&near).unwrap(), b"mine");
    for name in ["disk.zones", "disk.zones.new"] {
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    std::fs::write(&far, "mine").unwrap();
    std::os::unix::fs::symlink(&far, &near).unwrap();
    drop(open(&path, &options()).unwrap());
    assert_eq!(std::fs::read(&far).unwrap(), b"mine");
}

#[test]
fn what_no_device_can_be_made_of_is_refused_before_anything_is_written() {
    let (_folder, path) = folder();
    assert!(refusal(&path, &ZoneOptions::default()).contains("needs zone-size"));
    let odd = ZoneOptions { zone_size: Some(3 << 20), ..options() };
    assert!(refusal(&path, &odd).contains("power of two"));
    let above = ZoneOptions { capacity: Some(2 * ZONE), ..options() };
    assert!(refusal(&path, &above).contains("above the zone size"));
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(u64::from(ZONES) * ZONE + 4096).unwrap();
    assert!(refusal(&path, &options()).contains("not whole zones"));
    file.set_len(u64::from(ZONES) * ZONE).unwrap();
    let looked_at = ZonedFile::open(&path, &options(), true, DirectMode::Auto).unwrap();
    assert_eq!(report(&Gate::new(looked_at.device))[3].condition, ZoneCondition::Empty);
    assert!(!Path::new(&format!("{}.zones", path.display())).exists());
}

#[test]
fn damaged_state_is_repaired_from_its_other_copy_or_opened_read_only() {
    let (_folder, path) = folder();
    let mut disk = blocking(&open(&path, &options()).unwrap());
    disk.write_at(start(3), &[3; 4096], true).unwrap();
    drop(disk);
    let state = format!("{}.zones", path.display());
    let whole = std::fs::read(&state).unwrap();
    let damage = |places: &[usize]| {
        let mut bytes = whole.clone();
        places.iter().for_each(|place| bytes[*place] ^= 0x55);
        std::fs::write(&state, bytes).unwrap();
    };
    let half = whole.len() / 2;
    damage(&[4096 + 100]);
    let opened = ZonedFile::open(&path, &options(), false, DirectMode::Auto).unwrap();
    assert!(opened.warnings[0].contains("both are the same again"));
    drop(opened);
    assert!(std::fs::read(&state).unwrap() == whole);

    damage(&[4096 + 100, half + 4096 + 300]);
    assert!(refusal(&path, &options()).contains("open it read-only"));
    let opened = ZonedFile::open(&path, &options(), true, DirectMode::Auto).unwrap();
    assert!(opened.warnings[0].contains("zones 0 to 7"));
    let gate = Gate::new(opened.device);
    assert_eq!(report(&gate)[3].condition, ZoneCondition::ReadOnly);
    let mut read = vec![0; 4096];
    blocking(&gate).read_at(start(3), &mut read).unwrap();
    assert!(read.iter().all(|byte| *byte == 3));
    drop(gate);

    damage(&[10, half + 10]);
    assert!(refusal(&path, &options()).contains("header is damaged in both copies"));
    std::fs::write(&state, &whole[..whole.len() - 4096]).unwrap();
    assert!(refusal(&path, &options()).contains("must have"));
    std::fs::write(&state, b"").unwrap();
    assert!(refusal(&path, &options()).contains("header is damaged"));
}
