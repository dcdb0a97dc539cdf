//! Headers after the power fails behind the last write of a change that was said to be done: whatever was not synced is
//! lost, all of it and parts of it, and they say the new thing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cryptline_luks::edit::{TokenPlace, TokenSlots};
use cryptline_luks::format::{FormatOptions, KdfCost, KdfKind, LuksVersion};
use cryptline_luks::seal::Covers;
use cryptline_luks::{Error as LuksError, HeaderInfo, UnlockOptions};
use cryptline_testkit::cache::{Left, Temper};
use cryptline_testkit::volatile_medium;

use super::*;
use crate::Create;
use crate::rules::HeaderRules;
use crate::testing::{LosingFolder, cheap, cuts};

const SIZE: usize = 4 << 20;
const CAPACITY: usize = 5 << 20;
/// In the place for key slots, and in none.
const UNUSED: usize = 1 << 20;
const FIRST: &str = "first";
const SECOND: &str = "second";
const NEW: &str = "new";
const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
const TOKEN: &str = r#"{"type":"other","keyslots":["0","1"]}"#;

/// A change of a header.
struct Verb {
    name: &'static str,
    version: LuksVersion,
    /// Changes the volume in this file beforehand, and may put something beside it.
    before: fn(&Path),
    change: fn(Header, &Path) -> Result<()>,
    /// Tells if a disk says that it was made.
    is_made: fn(&[u8]) -> bool,
}

fn slot(iterations: u32) -> NewSlot {
    let cost = KdfCost { iterations: Some(iterations), ..KdfCost::default() };
    NewSlot { kdf: Some(KdfKind::Pbkdf2), cost, ..NewSlot::default() }
}

fn format(version: LuksVersion) -> FormatOptions {
    let sector_size = (version == LuksVersion::Luks2).then_some(512);
    FormatOptions { sector_size, data_offset: Some(3 << 20), ..cheap(version) }
}

fn read(disk: &[u8]) -> Option<(cryptline_luks::LuksHeader, io::Cursor<&[u8]>)> {
    let mut device = io::Cursor::new(disk);
    let header = cryptline_luks::read(&mut device, disk.len() as u64).ok()?;
    Some((header, device))
}

fn says(disk: &[u8], what: impl FnOnce(HeaderInfo) -> bool) -> bool {
    read(disk).is_some_and(|(header, _)| what(header.info()))
}

/// Both copies say the same: an old one would be taken where the other is damaged later.
fn agrees(disk: &[u8]) -> bool {
    says(disk, |it| it.header_copies.iter().all(|copy| copy.damage.is_none() && copy.epoch == it.epoch))
}

fn opens(disk: &[u8], passphrase: &str) -> bool {
    read(disk).is_some_and(|(header, mut device)| {
        header.unlock(&mut device, passphrase.as_bytes(), &UnlockOptions::default()).is_ok()
    })
}

fn done<T>(edited: Result<T>) -> Result<()> {
    edited.map(drop)
}

fn nothing(_: &Path) {}

fn second(path: &Path) {
    Header::new(path).passphrase(FIRST).new_passphrase(SECOND).add_key(&slot(1000)).unwrap();
}

fn token(path: &Path) {
    second(path);
    Header::new(path).set_token(TOKEN, TokenPlace::default(), TokenSlots::AsGiven).unwrap();
}

fn change_bytes(path: &Path, change: impl FnOnce(&mut [u8])) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn backup_of(path: &Path) -> PathBuf {
    path.with_file_name("backup")
}

/// A backup, and another passphrase since.
fn backup(path: &Path) {
    Header::new(path).backup(backup_of(path)).unwrap();
    Header::new(path).passphrase(FIRST).new_passphrase(NEW).change_key(&slot(1000)).unwrap();
}

/// Returns the verbs that both versions have.
fn verbs_of(version: LuksVersion) -> Vec<Verb> {
    let verb = |name, before, change, is_made| Verb { name, version, before, change, is_made };
    vec![
        verb(
            "add a key",
            nothing,
            |header, _| done(header.passphrase(FIRST).new_passphrase(NEW).add_key(&slot(1000))),
            |disk| opens(disk, NEW) && opens(disk, FIRST),
        ),
        verb(
            "change a key",
            nothing,
            |header, _| done(header.passphrase(FIRST).new_passphrase(NEW).change_key(&slot(1000))),
            |disk| opens(disk, NEW) && !opens(disk, FIRST),
        ),
        verb(
            "convert a key",
            nothing,
            |header, _| done(header.passphrase(FIRST).convert_key(&slot(3000))),
            |disk| says(disk, |it| it.keyslots.iter().all(|slot| slot.kdf.as_ref().unwrap().iterations == Some(3000))),
        ),
        verb(
            "remove a key",
            second,
            |header, _| done(header.passphrase(SECOND).remove_key(LastSlot::Keep)),
            |disk| opens(disk, FIRST) && !opens(disk, SECOND),
        ),
        verb(
            "kill a slot",
            second,
            |header, _| done(header.kill_slot(1, LastSlot::Keep)),
            |disk| opens(disk, FIRST) && !opens(disk, SECOND),
        ),
        verb("erase", second, |header, _| done(header.erase()), |disk| says(disk, |it| it.keyslots.is_empty())),
        verb(
            "set the UUID",
            nothing,
            |header, _| done(header.set_uuid(Some(UUID))),
            |disk| says(disk, |it| it.uuid == UUID),
        ),
        verb(
            "restore",
            backup,
            |header, path| done(header.restore(backup_of(path), |_| Ok(()))),
            |disk| opens(disk, FIRST) && !opens(disk, NEW),
        ),
        verb(
            "wipe what is unused",
            |path| change_bytes(path, |bytes| bytes[UNUSED..UNUSED + 512].fill(0xab)),
            |header, _| done(header.wipe_unused()),
            |disk| disk[UNUSED..UNUSED + 512] != [0xab; 512],
        ),
    ]
}

/// Tokens, and keys that LUKS1 does not have.
fn additions() -> Vec<Verb> {
    let luks2 = |name, before, change, is_made| Verb { name, version: LuksVersion::Luks2, before, change, is_made };
    vec![
        luks2(
            "set a token",
            second,
            |header, _| done(header.set_token(TOKEN, TokenPlace::default(), TokenSlots::AsGiven)),
            |disk| says(disk, |it| it.tokens.len() == 1),
        ),
        luks2(
            "set a token of the keyring",
            nothing,
            |header, _| done(header.set_keyring_token("a:b", TokenPlace::default(), TokenSlots::All)),
            |disk| says(disk, |it| it.tokens.len() == 1),
        ),
        luks2(
            "remove a token",
            token,
            |header, _| done(header.remove_token(0)),
            |disk| says(disk, |it| it.tokens.is_empty()),
        ),
        luks2(
            "unassign a token",
            token,
            |header, _| done(header.unassign_token(0, 1)),
            |disk| says(disk, |it| it.tokens[0].keyslots == [0]),
        ),
        luks2(
            "add a recovery key",
            nothing,
            |header, _| done(header.passphrase(FIRST).add_recovery_key(None)),
            |disk| says(disk, |it| it.tokens.len() == 1 && it.keyslots.len() == 2),
        ),
        luks2(
            "add an unbound key",
            nothing,
            |header, _| done(header.new_passphrase(NEW).add_unbound_key(32, &slot(1000))),
            |disk| says(disk, |it| it.keyslots.len() == 2),
        ),
    ]
}

fn verbs() -> Vec<Verb> {
    use LuksVersion::{Luks1, Luks2};
    let verb = |name, version, before, change, is_made| Verb { name, version, before, change, is_made };
    let luks2 = |name, before, change, is_made| Verb { name, version: Luks2, before, change, is_made };
    let more = [
        luks2(
            "set a priority",
            nothing,
            |header, _| done(header.set_priority(0, Priority::Prefer)),
            |disk| says(disk, |it| it.keyslots[0].priority == "prefer"),
        ),
        luks2(
            "set the label",
            nothing,
            |header, _| done(header.set_label(Some("label"), Some("subsystem"))),
            |disk| says(disk, |it| it.label.as_deref() == Some("label")),
        ),
        luks2(
            "repair",
            |path| change_bytes(path, |bytes| bytes[5000] ^= 1),
            |header, _| done(header.repair(false)),
            |disk| says(disk, |it| it.header_copies.iter().all(|copy| copy.damage.is_none()) && it.warnings.is_empty()),
        ),
        luks2(
            "convert to LUKS1",
            second,
            |header, _| done(header.convert(LuksVersion::Luks1)),
            |disk| says(disk, |it| it.version == 1) && opens(disk, SECOND),
        ),
        verb(
            "convert to LUKS2",
            Luks1,
            second,
            |header, _| done(header.convert(LuksVersion::Luks2)),
            |disk| says(disk, |it| it.version == 2) && opens(disk, SECOND),
        ),
        verb(
            "repair",
            Luks1,
            // The stripes of a slot that is not used.
            |path| change_bytes(path, |bytes| bytes[208 + 48 + 44..][..4].fill(0xff)),
            |header, _| done(header.repair(true)),
            |disk| says(disk, |it| it.warnings.is_empty()) && disk[208 + 48 + 44..][..4] == 4000_u32.to_be_bytes(),
        ),
    ];
    [verbs_of(Luks2), verbs_of(Luks1), additions()].into_iter().flatten().chain(more).collect()
}

/// Returns what a power cut may leave now.
fn left_of(place: &LosingFolder) -> Vec<(String, Left)> {
    let mut all: Vec<(String, Left)> = Vec::new();
    for cut in cuts() {
        let left = place.machine.folder_after(cut);
        if all.iter().all(|(_, known)| *known != left) {
            all.push((format!("{cut:?}"), left));
        }
    }
    all
}

fn disk_of(left: &Left) -> &[u8] {
    left.get(std::ffi::OsStr::new("disk")).map_or(&[], Vec::as_slice)
}

volatile_medium!(Volatile, crate::Medium);

#[test]
fn change_that_was_said_to_be_done_is_there_after_a_power_cut() {
    for Verb { name, version, before, change, is_made } in verbs() {
        let place = LosingFolder::new();
        let (path, name) = (place.path("disk"), format!("{version:?}: {name}"));
        let create = Create::new(&path).size(SIZE as u64).format(format(version));
        create.passphrase(FIRST).create().unwrap();
        before(&path);
        let bytes = fs::read(&path).unwrap();
        assert!(!is_made(&bytes), "{name}: nothing to do");
        let medium = Volatile::new(&bytes, usize::MAX);
        change(Header::medium(Arc::clone(&medium)), &path).unwrap_or_else(|error| panic!("{name}: {error}"));
        for left in medium.0.survivors() {
            assert!(is_made(&left) && agrees(&left), "{name}: undone on a medium");
        }
        place.begin(CAPACITY);
        change(Header::new(&path), &path).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (cut, left) in left_of(&place) {
            let disk = disk_of(&left);
            assert!(is_made(disk) && agrees(disk), "{name}: undone in a file by {cut}");
        }
    }
}

/// The header is changed all the same: its seal has another counter, and what it does not name is a hole.
#[test]
fn change_after_which_a_sync_fails_is_noted_and_frees_its_place() {
    let mut seen = 0;
    // Of about four syncs that come first, none may fail.
    for seed in 0..40 {
        let (place, elsewhere) = (LosingFolder::new(), tempfile::tempdir().unwrap());
        let (path, state) = (place.path("disk"), elsewhere.path().join("state"));
        let create = Create::new(&path).size(SIZE as u64).format(format(LuksVersion::Luks2));
        create.passphrase(FIRST).create().unwrap();
        let covers = Covers { keyslots: true, tokens: false };
        Header::new(&path).passphrase(FIRST).sign(&SealOptions { covers, ..SealOptions::default() }).unwrap();
        place.begin(CAPACITY);
        place.machine.change_temper(Temper { unsynced: 4, ..Temper::default() });
        place.machine.step(Some(seed));
        let rules = HeaderRules { state: Some(state.clone()), ..HeaderRules::default() };
        let header = Header::new(&path).passphrase(FIRST).new_passphrase(NEW).header_rules(rules);
        let Err(error) = header.change_key(&slot(1000)) else { continue };
        if !matches!(error.problem(), Problem::Luks(LuksError::NotWiped { .. })) {
            continue;
        }
        seen += 1;
        let disk = fs::read(&path).unwrap();
        assert!(opens(&disk, NEW) && disk[0x8000..0x9000] == [0; 4096]);
        assert!(fs::read_to_string(&state).unwrap().contains(r#":"2""#));
    }
    assert!(seen > 0);
}

#[test]
fn backup_that_was_said_to_be_made_is_there_after_a_power_cut() {
    for version in [LuksVersion::Luks1, LuksVersion::Luks2] {
        let place = LosingFolder::new();
        let path = place.path("disk");
        let create = Create::new(&path).size(SIZE as u64).format(format(version));
        create.passphrase(FIRST).create().unwrap();
        place.begin(CAPACITY);
        Header::new(&path).backup(backup_of(&path)).unwrap();
        let made = fs::read(backup_of(&path)).unwrap();
        for (cut, left) in left_of(&place) {
            assert!(left.get(std::ffi::OsStr::new("backup")) == Some(&made), "{version:?}: {cut}");
        }
    }
}

#[test]
fn size_that_was_said_to_be_set_is_there_after_a_power_cut() {
    for (is_fixed, to) in [(false, 5 << 20), (false, (3 << 20) + 65536), (true, 5 << 20)] {
        let place = LosingFolder::new();
        let path = place.path("disk");
        let create = Create::new(&path).size(SIZE as u64).format(format(LuksVersion::Luks2));
        create.passphrase(FIRST).create().unwrap();
        if is_fixed {
            resize::tests::fix_size(&path);
        }
        place.begin(CAPACITY);
        let options = ResizeOptions { size: Some(to), shrink: true, force: true };
        Header::new(&path).resize(&options).unwrap();
        let len = fs::metadata(&path).unwrap().len();
        for (cut, left) in left_of(&place) {
            let disk = disk_of(&left);
            assert_eq!(disk.len() as u64, len, "{cut}");
            let size = is_fixed.then(|| to - (3 << 20));
            assert!(says(disk, |it| it.segments[0].size == size), "to {to}, {cut}");
        }
    }
}

#[test]
fn volume_that_was_said_to_be_made_is_there_after_a_power_cut() {
    for version in [LuksVersion::Luks1, LuksVersion::Luks2] {
        for replaces in [false, true] {
            let place = LosingFolder::new();
            let path = place.path("disk");
            if replaces {
                fs::write(&path, "old").unwrap();
            }
            place.begin(CAPACITY);
            let create = Create::new(&path).size(SIZE as u64).format(format(version)).replace(replaces);
            create.passphrase(FIRST).create().unwrap();
            for (cut, left) in left_of(&place) {
                assert!(opens(disk_of(&left), FIRST) && left.len() == 1, "{version:?}: {cut}");
            }
        }
        let medium = Volatile::new(&[0; SIZE], usize::MAX);
        let create = Create::medium(Arc::clone(&medium)).format(format(version));
        create.passphrase(FIRST).create().unwrap();
        for left in medium.0.survivors() {
            assert!(opens(&left, FIRST), "{version:?}");
        }
    }
}
