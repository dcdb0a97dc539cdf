//! LUKS2 volumes of several segments: the same disk as device-mapper lines that say what the header says.

use std::fs;
use std::path::PathBuf;

use cryptline::{Open, TableLine, Target, Volume, VolumeKind};
use tempfile::TempDir;

use crate::common::{PHRASE, edit, make, read, write};

const SIZE: u64 = 20 << 20;
/// Where the data begins, in sectors.
const DATA: u64 = 32768;
/// Sectors of data.
const SECTORS: u64 = (SIZE >> 9) - DATA;

struct Image {
    _folder: TempDir,
    path: PathBuf,
}

impl Image {
    /// A LUKS2 volume with these segments, all but those of type `linear` under the volume key.
    fn with(segments: &str, encrypted: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("disk");
        make(&path, SIZE);
        edit(&path, |json| {
            let (before, rest) = json.split_once("\"segments\":{").unwrap();
            let (_, after) = rest.split_once("}}").unwrap();
            let after = after.replace("\"segments\":[\"0\"]", encrypted);
            format!("{before}\"segments\":{{{segments}}}{after}")
        });
        Self { _folder: folder, path }
    }

    fn unlocked(&self) -> Open {
        Open::new(&self.path).passphrase(PHRASE)
    }
}

fn crypt(number: u32, cipher: &str, sector: u32, place: (u64, &str), tweak: u64) -> String {
    let (offset, size) = (place.0 * 512, place.1);
    format!(
        r#""{number}":{{"type":"crypt","offset":"{offset}","size":"{size}","iv_tweak":"{tweak}","encryption":"{cipher}","sector_size":{sector}}}"#
    )
}

fn of_table(text: &str) -> Volume {
    let table = Target::Table(TableLine::new(text).unwrap());
    Open::target(table).open().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn noise(sectors: u64) -> Vec<u8> {
    let byte = |at: u64| u8::try_from((at / 7 + at / 512 * 31) % 251).unwrap();
    (0..sectors * 512).map(byte).collect()
}

#[test]
fn segments_are_the_lines_of_a_table_under_one_key() {
    let segments = [
        crypt(0, "aes-xts-plain64", 4096, (DATA, "1048576"), 0),
        crypt(1, "aes-xts-plain64", 512, (DATA + 2048, "512512"), 2048),
        crypt(2, "aes-xts-plain64", 512, (DATA + 3049, "dynamic"), 3049),
    ];
    let image = Image::with(&segments.join(","), r#""segments":["0","1","2"]"#);
    let printed = image.unlocked().table(true).unwrap().line;
    let key = printed.split_whitespace().nth(4).unwrap();
    let path = image.path.display();
    let lines = [
        format!("0 2048 crypt aes-xts-plain64 {key} 0 {path} {DATA} 1 sector_size:4096"),
        format!("2048 1001 crypt aes-xts-plain64 {key} 2048 {path} {}", DATA + 2048),
        format!("3049 {} crypt aes-xts-plain64 {key} 3049 {path} {}", SECTORS - 3049, DATA + 3049),
    ];
    assert_eq!(*printed, lines.join("\n"));
    assert_eq!(Open::new(&image.path).inspect().unwrap().data_size.unwrap(), SECTORS * 512);

    let data = noise(SECTORS);
    let volume = image.unlocked().open().unwrap();
    let info = volume.info();
    assert_eq!((info.kind, info.segments), (VolumeKind::Luks2, 3));
    assert_eq!((info.size, info.key_bits), (SECTORS * 512, 512));
    assert_eq!(info.cipher, "aes-xts-plain64");
    write(&volume, &data);
    assert!(read(&volume) == data);
    drop(volume);
    assert!(read(&of_table(&printed)) == data);
    // What each line alone is does not depend on how ranges are put together.
    let (mut all, mut at) = (Vec::new(), 0);
    for line in &lines {
        let alone = line.split_once(' ').map(|(_, rest)| format!("0 {rest}"));
        let alone = read(&of_table(&alone.unwrap()));
        at += alone.len();
        all.extend(alone);
    }
    assert!(at == data.len() && all == data);
    // And the other way round.
    let new: Vec<u8> = data.iter().rev().copied().collect();
    write(&of_table(&printed), &new);
    assert!(read(&image.unlocked().open().unwrap()) == new);
}

#[test]
fn segment_in_the_clear_is_opened_only_where_that_is_allowed() {
    let clear = format!(r#""1":{{"type":"linear","offset":"{}","size":"dynamic"}}"#, (DATA + 8) * 512);
    let first = crypt(0, "aes-xts-plain64", 512, (DATA, "4096"), 0);
    let image = Image::with(&format!("{first},{clear}"), r#""segments":["0"]"#);
    let refused = image.unlocked().open().err().unwrap().to_string();
    assert!(refused.contains("segment 1 is of type 'linear'"), "{refused}");
    let volume = image.unlocked().allow_null_cipher(true).open().unwrap();
    let data = noise(SECTORS);
    write(&volume, &data);
    assert!(read(&volume) == data);
    drop(volume);
    let stored = fs::read(&image.path).unwrap().split_off(usize::try_from(DATA * 512).unwrap());
    assert!(stored[4096..] == data[4096..] && stored[..4096] != data[..4096]);
    let table = image.unlocked().allow_null_cipher(true).table(false).unwrap();
    let last = format!("8 {} linear {} {}", SECTORS - 8, image.path.display(), DATA + 8);
    assert_eq!(table.line.lines().last(), Some(&*last));
}

#[test]
fn segments_with_a_gap_or_beyond_the_end_are_refused() {
    let (cipher, all) = ("aes-xts-plain64", r#""segments":["0","1"]"#);
    for (second, says) in [((DATA + 16, "dynamic"), "begins at byte"), ((DATA + 8, "1073741824"), "truncated")] {
        let first = crypt(0, cipher, 512, (DATA, "4096"), 0);
        let image = Image::with(&[first, crypt(1, cipher, 512, second, 8)].join(","), all);
        let error = image.unlocked().open().err().unwrap().to_string();
        assert!(error.contains(says), "{error}");
    }
}
