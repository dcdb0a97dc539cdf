//! Headers that somebody has given another cipher: nothing is written to their volumes, by whatever way they are opened.

use std::fs;
use std::path::{Path, PathBuf};

use cryptline::luks::edit::{LastSlot, NewSlot};
use cryptline::luks::format::FormatOptions;
use cryptline::luks::{Doubted, Error as LuksError};
use cryptline::{Copy, CopySource, Create, ErrorKind, Header, Open, Problem, Warning};
use tempfile::TempDir;

use crate::common::{PHRASE, cheap, edit, make, read, write};

const SIZE: u64 = 20 << 20;
const KEY_LEN: u32 = 64;

struct Disk {
    folder: TempDir,
    path: PathBuf,
    key: Vec<u8>,
}

impl Disk {
    /// A volume of ours.
    fn new(format: FormatOptions) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("disk");
        Create::new(&path).size(SIZE).format(format).passphrase(PHRASE).create().unwrap();
        let key = Open::new(&path).passphrase(PHRASE).unlock().unwrap().key.to_vec();
        Self { folder, path, key }
    }

    /// Another cipher for its data, as somebody writes it who has no key.
    fn mutated(self, cipher: &str) -> Self {
        let from = self.cipher();
        edit(&self.path, |json| {
            let (before, segments) = json.split_once("\"segments\":{").unwrap();
            let segments = segments.replacen(&format!("\"{from}\""), &format!("\"{cipher}\""), 1);
            format!("{before}\"segments\":{{{segments}")
        });
        assert_eq!(self.cipher(), cipher);
        self
    }

    fn cipher(&self) -> String {
        let header = Open::new(&self.path).inspect().unwrap().header;
        header.info().segments[0].cipher.clone().unwrap()
    }

    fn open(&self) -> Open {
        Open::new(&self.path).passphrase(PHRASE)
    }

    fn by_key(&self) -> Open {
        Open::new(&self.path).key(&self.key)
    }

    fn header(&self) -> Header {
        Header::new(&self.path).passphrase(PHRASE).new_passphrase("new")
    }

    /// `work`, which must leave every byte as it is.
    fn untouched<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = fs::read(&self.path).unwrap();
        let done = work();
        assert!(fs::read(&self.path).unwrap() == before, "something was written");
        done
    }
}

fn is_doubted(error: &cryptline::Error) -> bool {
    matches!(error.problem(), Problem::Luks(LuksError::DoubtedCipher(_))) && error.kind() == ErrorKind::Device
}

fn warned(warnings: &[Warning]) -> Option<&Doubted> {
    warnings.iter().find_map(|warning| match warning {
        Warning::Doubted(doubted) => Some(doubted),
        _ => None,
    })
}

fn new_slot() -> NewSlot {
    NewSlot { kdf: cheap().kdf, cost: cheap().cost, ..NewSlot::default() }
}

/// By a passphrase and by the volume key: nothing vouches for what was put there.
#[test]
fn mutated_cipher_is_never_written() {
    for (cipher, opens) in
        [("aes-xts-null", false), ("aes:2-ctr-null", false), ("aes:4-ecb", false), ("aes-xts-benbi", true)]
    {
        let disk = Disk::new(cheap()).mutated(cipher);
        for open in [Disk::open as fn(&Disk) -> Open, Disk::by_key] {
            disk.untouched(|| match open(&disk).open() {
                Ok(volume) => {
                    assert!(opens, "{cipher}");
                    let info = volume.info();
                    assert!(info.read_only && !info.discards, "{cipher}");
                    assert_eq!(warned(volume.warnings()).unwrap().word, cipher);
                    let mut blocking = volume.blocking().unwrap();
                    blocking.write_at(0, &[7; 4096], false).unwrap_err();
                    blocking.flush().unwrap();
                    read(&volume);
                }
                Err(error) => assert!(!opens && is_doubted(&error), "{cipher}: {error}"),
            });
            for write in [open(&disk).writes(true), open(&disk).writes(true).discards(true)] {
                assert!(is_doubted(&disk.untouched(|| write.open().err().unwrap())), "{cipher}");
            }
            let read_only = disk.untouched(|| open(&disk).writes(true).read_only(true).open());
            assert_eq!(read_only.is_ok(), opens, "{cipher}");
            let table = disk.untouched(|| open(&disk).table(true).err().unwrap());
            assert!(is_doubted(&table), "{cipher}: {table}");
            let unlocked = open(&disk).unlock().unwrap();
            assert_eq!((unlocked.usable.is_ok(), unlocked.doubted.is_some()), (opens, opens), "{cipher}");
        }
    }
}

#[test]
fn no_verb_makes_a_key_slot_that_vouches_for_a_mutated_cipher() {
    for cipher in ["aes-xts-null", "aes-xts-benbi"] {
        let disk = Disk::new(cheap()).mutated(cipher);
        let bytes = Disk::header;
        let verbs: [&dyn Fn() -> Option<cryptline::Error>; 6] = [
            &|| bytes(&disk).add_key(&new_slot()).err(),
            &|| bytes(&disk).change_key(&new_slot()).err(),
            &|| bytes(&disk).convert_key(&new_slot()).err(),
            &|| bytes(&disk).remove_key(LastSlot::Remove).err(),
            &|| bytes(&disk).kill_slot(0, LastSlot::Remove).err(),
            &|| bytes(&disk).add_recovery_key(None).err(),
        ];
        for (number, verb) in verbs.iter().enumerate() {
            let error = disk.untouched(verb).unwrap_or_else(|| panic!("{cipher} {number}"));
            assert!(is_doubted(&error), "{number}: {error}");
        }
        disk.header().accept_cipher(cipher).add_key(&new_slot()).unwrap();
    }
}

#[test]
fn copy_into_a_mutated_volume_is_refused() {
    let disk = Disk::new(cheap()).mutated("aes-xts-benbi");
    let source = disk.folder.path().join("source");
    fs::write(&source, [1; 8192]).unwrap();
    let copy = || Copy::new(CopySource::raw(&source).unwrap()).replace(true);
    let error = disk.untouched(|| copy().into_volume(|| Ok(disk.open())).err().unwrap());
    assert!(is_doubted(&error), "{error}");
    copy().into_volume(|| Ok(disk.open().accept_cipher("aes-xts-benbi"))).unwrap();
    // It can be copied from, as it can be read.
    let _ = CopySource::volume(&disk.untouched(|| disk.open().open().unwrap()));
}

#[test]
fn accepted_cipher_is_written_and_only_that() {
    let disk = Disk::new(cheap()).mutated("aes-xts-null");
    let error = disk.open().accept_cipher("aes-xts-benbi").accept_cipher("capi:xts(aes)-null").open().err().unwrap();
    assert!(is_doubted(&error));
    let target = format!("{}?accept-cipher=aes-xts-null", disk.path.display());
    for open in [disk.open().accept_cipher("aes-xts-null"), Open::new(&target).passphrase(PHRASE)] {
        let volume = open.writes(true).open().unwrap();
        assert!(!volume.info().read_only && warned(volume.warnings()).is_none());
        write(&volume, &[5; 4096]);
    }
    Header::new(&target).passphrase(PHRASE).new_passphrase("new").add_key(&new_slot()).unwrap();
    // What encrypts nothing is not accepted so.
    let disk = disk.mutated("cipher_null-ecb");
    let error = disk.untouched(|| disk.open().accept_cipher("cipher_null-ecb").open().err().unwrap());
    assert!(matches!(error.problem(), Problem::Luks(LuksError::NullCipher(_))), "{error}");
}

/// Volumes of legacy ciphers stay what they are, by every key that is added, and need the option where only the volume
/// key is there.
#[test]
fn legacy_volume_is_written_by_its_passphrases() {
    let format = FormatOptions { cipher: "aes-cbc-essiv:sha256".into(), key_len: KEY_LEN / 2, ..cheap() };
    let disk = Disk::new(format);
    let is_read_only = |open: Open| open.open().unwrap().info().read_only;
    disk.header().add_key(&new_slot()).unwrap();
    disk.header().change_key(&new_slot()).unwrap();
    for slot in [0, 1] {
        assert!(!is_read_only(Open::new(&disk.path).passphrase("new").key_slot(slot)), "{slot}");
    }
    assert!(is_read_only(disk.by_key()));
    assert!(!is_read_only(disk.by_key().accept_cipher("aes-cbc-essiv:sha256")));
}

/// Made before areas were given the cipher of the data.
#[test]
fn key_that_does_not_vouch_is_healed_by_changing_it() {
    let slot_cipher = Some(("aes-xts-plain64".to_owned(), 64));
    let disk = Disk::new(FormatOptions { cipher: "aes-cbc-plain64".into(), key_len: 32, slot_cipher, ..cheap() });
    assert!(disk.open().open().unwrap().info().read_only);
    disk.header().accept_cipher("aes-cbc-plain64").change_key(&new_slot()).unwrap();
    assert!(!Open::new(&disk.path).passphrase("new").open().unwrap().info().read_only);
}

#[test]
fn broken_cipher_is_made_only_where_it_is_accepted() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk");
    let create = |target: &Path, accepted: &[&str]| {
        let accepted_ciphers = accepted.iter().map(|&word| word.to_owned()).collect();
        let format = FormatOptions { cipher: "aes-xts-null".into(), accepted_ciphers, ..cheap() };
        Create::new(target).size(SIZE).format(format).passphrase(PHRASE).replace(true).create()
    };
    let error = create(&path, &["aes-xts-plain64"]).err().unwrap();
    assert!(matches!(error.problem(), Problem::Luks(LuksError::BrokenCipher(_))), "{error}");
    assert!(!path.exists());
    create(&path, &["aes-xts-null"]).unwrap();
    // Nothing vouches for it, since its key is not kept under such a cipher.
    assert!(is_doubted(&Open::new(&path).passphrase(PHRASE).open().err().unwrap()));
}

/// 32 bits count the sectors of 2 TiB.
#[test]
fn plain_beyond_two_tebibytes_is_read_only() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk");
    let format = FormatOptions { cipher: "aes-xts-plain".into(), ..cheap() };
    Create::new(&path).size(SIZE).format(format).passphrase(PHRASE).create().unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    for (data, read_only) in [(2_u64 << 40, false), ((2 << 40) + 4096, true)] {
        if file.set_len((16 << 20) + data).is_err() {
            // No file can be so long here.
            return;
        }
        let volume = Open::new(&path).passphrase(PHRASE).open().unwrap();
        assert_eq!((volume.info().size, volume.info().read_only), (data, read_only));
        assert_eq!(warned(volume.warnings()).is_some(), read_only);
    }
    assert!(!Open::new(&path).passphrase(PHRASE).accept_cipher("aes-xts-plain").open().unwrap().info().read_only);
}

#[test]
fn flag_of_the_header_passes_no_discards_down() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk");
    make(&path, SIZE);
    edit(&path, |json| json.replace("\"config\":{", "\"config\":{\"flags\":[\"allow-discards\"],"));
    let open = || Open::new(&path).passphrase(PHRASE);
    let volume = open().open().unwrap();
    assert!(!volume.info().discards && volume.warnings().contains(&Warning::DiscardsNotAsked));
    drop(volume);
    let volume = open().discards(true).open().unwrap();
    assert!(volume.info().discards && !volume.warnings().contains(&Warning::DiscardsNotAsked));
    drop(volume);
    assert!(!open().table(false).unwrap().line.contains("allow_discards"));
}
