//! Data and its header that are replaced, killed and cut off at every step: nothing is lost, nothing opens onto what is
//! not its data, and the next run finds a header that has not got its name.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use cryptline_luks::format::{FormatOptions, LuksVersion};
use cryptline_testkit::cache::{Cut, Left, Names, Survivors, Temper};
use tempfile::TempDir;

use crate::durable::watched;
use crate::error::Problem;
use crate::testing::cheap;
use crate::{Copy, CopySource, Create, ErrorKind, Open, Result};

const LEN: usize = 1 << 20;
const CAPACITY: usize = 2 << 20;
const FOUND: &str = ".header.cryptline-new";
const ASIDE: &str = ".header.cryptline-old";

/// Data of these bytes under a header of its own, which this passphrase opens.
fn create(folder: &Path, source: &Path, byte: u8, passphrase: &str) -> Result<()> {
    fs::write(source, vec![byte; LEN]).unwrap();
    let format = FormatOptions { key_len: 32, keyslots_size: Some(256 << 10), ..cheap(LuksVersion::Luks2) };
    let format = FormatOptions { metadata_size: Some(16 << 10), ..format };
    let create = Create::new(folder.join("data")).header(folder.join("header")).replace(true).format(format);
    let copy = Copy::new(CopySource::raw(source).unwrap());
    create.passphrase(passphrase).fill(copy).create().map(drop)
}

/// Stands for bytes that are not all the same.
const NOISE: u8 = 0;

/// Returns what a folder shows under a header of this name, where that opens: the byte that all of it has.
fn opened(folder: &Path, header: &str, passphrase: &str) -> Option<u8> {
    let open = Open::new(folder.join("data")).header(folder.join(header)).passphrase(passphrase).read_only(true);
    let mut bytes = vec![0; LEN];
    open.open().ok()?.blocking().unwrap().read_at(0, &mut bytes).ok()?;
    Some(if bytes.iter().all(|byte| *byte == bytes[0]) { bytes[0] } else { NOISE })
}

fn files(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
}

fn put(folder: &Path, left: &Left) {
    for name in files(folder).keys() {
        fs::remove_file(folder.join(name)).unwrap();
    }
    for (name, bytes) in left {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

/// Judges a folder that was left, and goes on from there. Which of the two data it has, and the name of the header.
fn judge(folder: &Path, source: &Path, left: &Left, when: &str) -> (u8, &'static str) {
    put(folder, left);
    let names = ["header", FOUND, ASIDE];
    let all = names.map(|name| [opened(folder, name, "old"), opened(folder, name, "new")]);
    assert!(all[0].iter().all(|shown| *shown != Some(NOISE)), "{when}: onto what is not its data");
    let is_old = all.iter().position(|it| it[0] == Some(1));
    let is_new = all.iter().position(|it| it[1] == Some(2));
    let (data, place) = match (is_old, is_new) {
        (Some(place), None) => (1, place),
        (None, Some(place)) => (2, place),
        _ => panic!("{when}: lost, {:?}", left.keys()),
    };
    // The next run neither replaces a header that has not got its name nor goes on without a word.
    let next = create(folder, source, 3, "next");
    if [FOUND, ASIDE].iter().any(|name| left.contains_key(OsStr::new(name))) {
        let refused = next.expect_err(when);
        let is_told = matches!(refused.problem(), Problem::HeaderLeft | Problem::Exists { .. });
        assert!(is_told && refused.kind() == ErrorKind::Busy, "{when}: {refused}");
        assert!(refused.to_string().contains(".header.cryptline-"), "{when}: {refused}");
        assert!(files(folder) == *left, "{when}: refused, and changed");
    } else {
        next.unwrap_or_else(|error| panic!("{when}: {error}"));
    }
    (data, names[place])
}

#[test]
fn data_and_header_that_are_replaced_are_never_lost_between_their_names() {
    let (folder, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (machine, source) = (watched::machine(), outside.path().join("source"));
    create(folder.path(), &source, 1, "old").unwrap();
    let before = files(folder.path());
    let cuts = [
        // Killed.
        Cut { names: Names::Latest, content: Survivors::All },
        // Without power.
        Cut { names: Names::Latest, content: Survivors::None },
        Cut { names: Names::Durable, content: Survivors::None },
    ];
    let mut seen = BTreeMap::new();
    for point in 0.. {
        machine.reset(Temper::default());
        put(folder.path(), &before);
        machine.watch(folder.path(), CAPACITY);
        machine.cut_at(point, &cuts);
        create(folder.path(), &source, 2, "new").unwrap();
        let all = machine.take_cuts();
        let end = machine.folder_after(cuts[2]);
        machine.reset(Temper::default());
        if all.is_empty() {
            assert_eq!(judge(folder.path(), &source, &end, "at the end"), (2, "header"));
            break;
        }
        for (left, cut) in all.iter().zip(cuts) {
            let when = format!("cut {point}, {cut:?}");
            *seen.entry(judge(folder.path(), &source, left, &when)).or_insert(0) += 1;
        }
    }
    // Before, between, and after the two names.
    let places = [(1, "header"), (1, ASIDE), (2, FOUND), (2, "header")];
    assert!(places.iter().all(|place| seen.contains_key(place)), "{seen:?}");
}
