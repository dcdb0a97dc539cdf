//! Every cipher word that can stand in a header, against the classes that it should have.

use std::io::Cursor;

use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions, Strength};

use super::Trust;
use crate::format::{FormatOptions, KdfKind, LuksVersion, format};
use crate::segment::SegmentPolicy;
use crate::testing::{Image, PASSPHRASE, cheap_options};
use crate::tests::common;
use crate::{DataSegment, Error, LuksHeader, UnlockOptions};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

const CIPHERS: [&str; 8] = ["aes", "serpent", "twofish", "camellia", "sm4", "aes:2", "aes:4", "aes:64"];
const MODES: [&str; 5] = ["xts", "cbc", "lrw", "ctr", "ecb"];
const IVS: [&str; 14] = [
    "plain",
    "plain64",
    "plain64be",
    "null",
    "essiv:sha256",
    "essiv:md5",
    "benbi",
    "eboiv",
    "elephant",
    "lmk",
    "tcw",
    "random",
    "spdk",
    "plain64:x",
];
/// Words that are not broken, of one key.
const BETTER: [(Strength, &[&str]); 2] = [
    (Strength::Sound, &["xts-plain64", "xts-plain64:x", "xts-plain", "adiantum-plain64", "adiantum-plain64:x"]),
    (
        Strength::Legacy,
        &[
            "cbc-essiv:sha256",
            "cbc-essiv:md5",
            "cbc-plain",
            "cbc-plain64",
            "cbc-plain64:x",
            "xts-essiv:sha256",
            "xts-essiv:md5",
            "xts-benbi",
            "lrw-benbi",
            "adiantum-plain",
        ],
    ),
];
const MORE: [(&str, Strength); 8] = [
    ("aes", Strength::Legacy),
    ("aes-plain", Strength::Legacy),
    ("aes-ecb", Strength::Broken),
    ("capi:xts(aes)-plain64", Strength::Sound),
    ("capi:cbc(aes)-plain64", Strength::Legacy),
    ("capi:essiv(cbc(aes),sha256)-plain64", Strength::Legacy),
    ("capi:xts(aes)-null", Strength::Broken),
    ("capi:ecb(serpent)", Strength::Broken),
];

/// All words, with their classes.
fn words() -> Vec<(String, Strength)> {
    let mut words: Vec<_> = MORE.map(|(word, class)| (word.to_owned(), class)).into();
    let mut add = |cipher: &str, mode: &str, iv: &str| {
        let kind = format!("{mode}-{iv}");
        let better = BETTER.iter().find(|(_, kinds)| kinds.contains(&&*kind));
        let class = better.filter(|_| !cipher.contains(':')).map_or(Strength::Broken, |(class, _)| *class);
        words.push((format!("{cipher}-{kind}"), class));
    };
    for iv in IVS {
        for mode in MODES {
            CIPHERS.into_iter().for_each(|cipher| add(cipher, mode, iv));
        }
        for cipher in ["xchacha12,aes", "xchacha20,aes"] {
            add(cipher, "adiantum", iv);
        }
    }
    words
}

/// Tells if a key of `key_len` bytes makes a cipher of `word`.
fn takes(word: &str, key_len: usize) -> bool {
    let options = SectorOptions { sector_size: 512, iv_offset: 0, iv_large_sectors: false };
    let spec = CipherSpec::parse(word);
    spec.is_ok_and(|spec| SectorCipher::new(&spec, &vec![7; key_len], options).is_ok())
}

fn options(version: LuksVersion, word: &str, key_len: u32) -> FormatOptions {
    FormatOptions {
        version,
        cipher: word.to_owned(),
        key_len,
        kdf: Some(KdfKind::Pbkdf2),
        cost: crate::format::KdfCost { iterations: Some(1000), ..cheap_options(version).cost },
        data_offset: Some(4 * MIB),
        accepted_ciphers: vec![word.to_owned()],
        ..FormatOptions::default()
    }
}

fn formatted(options: &FormatOptions) -> Image {
    let size = 4 * MIB + 4096;
    let options = FormatOptions { sparse: true, ..options.clone() };
    Image::format(size, &options)
}

/// The same header with another cipher for its data.
fn with_cipher(image: &Image, word: &str) -> Option<Image> {
    let mut image = image.clone();
    if let LuksHeader::V2(_) = image.read().unwrap() {
        image.edit(|json| json["segments"]["0"]["encryption"] = word.into());
        return Some(image);
    }
    let (name, mode) = word.split_once('-')?;
    for (start, text) in [(8, name), (40, mode)] {
        image.bytes[start..start + 32].fill(0);
        image.bytes[start..start + text.len()].copy_from_slice(text.as_bytes());
    }
    Some(image)
}

/// Rights of its own passphrase and of its own volume key; `None` for what they do not open.
fn trusts(image: &Image) -> [Option<Trust>; 2] {
    let header = image.read().unwrap();
    let Ok(segments) = header.segments(SegmentPolicy::default()) else { return [None, None] };
    let size = u64::try_from(image.bytes.len()).unwrap();
    let unlocked = header.unlock(&mut Cursor::new(&image.bytes), PASSPHRASE, &UnlockOptions::default());
    let trust = |slot| header.trust(&segments, Some(size), slot, &[]);
    [unlocked.ok().map(|unlocked| trust(Some(unlocked.slot))), Some(trust(None))]
}

fn not_vouched(class: Strength) -> &'static str {
    match class {
        Strength::Sound => "read-write",
        Strength::Legacy => "read-only",
        Strength::Broken => "refused",
    }
}

fn name(trust: &Trust) -> &'static str {
    match trust {
        Trust::ReadWrite => "read-write",
        Trust::ReadOnly(_) => "read-only",
        Trust::Refused(_) => "refused",
    }
}

#[test]
fn no_word_put_into_a_header_is_written_unless_it_is_sound() {
    let words = words();
    let mut counts = [[0; 3]; 2];
    for (counts, key_len) in counts.iter_mut().zip([32, 64]) {
        let usual = [LuksVersion::Luks1, LuksVersion::Luks2]
            .map(|version| formatted(&options(version, "aes-xts-plain64", key_len)));
        for (word, class) in words.iter().filter(|(word, _)| takes(word, key_len as usize)) {
            counts[*class as usize] += 1;
            for (version, image) in ["LUKS1", "LUKS2"].into_iter().zip(&usual) {
                let what = format!("{version} {word} {key_len}");
                let Some(image) = with_cipher(image, word) else { continue };
                let [by_passphrase, by_key] = trusts(&image);
                assert_eq!(by_key.as_ref().map(name), Some(not_vouched(*class)), "{what}");
                let is_alike = word.starts_with("aes-xts-plain") || word.starts_with("capi:xts(aes)-plain");
                let opens = version == "LUKS2" || is_alike && *class == Strength::Sound;
                assert_eq!(by_passphrase.as_ref().map(name), opens.then_some(not_vouched(*class)), "{what}");
            }
        }
    }
    // Sound, legacy, broken: of keys of 256 and of 512 bits.
    assert_eq!((words.len(), counts), (596, [[20, 45, 218], [13, 12, 135]]));
}

#[test]
fn volumes_of_every_word_are_vouched_for_by_their_own_key_slots() {
    for key_len in [32, 64] {
        for (word, class) in words().iter().filter(|(word, _)| takes(word, key_len as usize)) {
            // Areas as cryptsetup would have them, and as they are made here.
            let theirs = FormatOptions {
                slot_cipher: Some((word.clone(), key_len)),
                ..options(LuksVersion::Luks2, word, key_len)
            };
            let broken = *class == Strength::Broken;
            for (what, options, expected) in [
                ("ours", options(LuksVersion::Luks2, word, key_len), if broken { "refused" } else { "read-write" }),
                ("theirs", theirs, if broken { "read-only" } else { "read-write" }),
                ("LUKS1", options(LuksVersion::Luks1, word, key_len), if broken { "read-only" } else { "read-write" }),
            ] {
                let mut device = Cursor::new(vec![0; usize::try_from(4 * MIB + 4096).unwrap()]);
                match format(&mut device, 4 * MIB + 4096, PASSPHRASE, &FormatOptions { sparse: true, ..options }) {
                    Ok(_) => {}
                    // LUKS1 has a name and a mode.
                    Err(Error::Parameters(_)) if what == "LUKS1" => continue,
                    Err(error) => panic!("{what} {word} {key_len}: {error}"),
                }
                let image = Image { bytes: device.into_inner() };
                let [trust, _] = trusts(&image);
                assert_eq!(trust.as_ref().map(name), Some(expected), "{what} {word} {key_len}");
            }
        }
    }
}

/// The data of a sparse disk of `size` bytes.
fn data(header: &LuksHeader, size: u64, slot: Option<u32>, accepted: &[String]) -> Trust {
    header.trust(&header.segments(SegmentPolicy::default()).unwrap(), Some(size), slot, accepted)
}

#[test]
fn plain_is_doubted_where_its_numbers_come_again() {
    for (word, beyond) in [("aes-xts-plain", "read-only"), ("aes-xts-plain64", "read-write")] {
        for version in [LuksVersion::Luks1, LuksVersion::Luks2] {
            let header = formatted(&options(version, word, 64)).read().unwrap();
            let start = 4 * MIB;
            assert_eq!(data(&header, start + 2 * TIB, Some(0), &[]), Trust::ReadWrite, "{word}");
            let trust = data(&header, start + 2 * TIB + 4096, Some(0), &[]);
            assert_eq!(name(&trust), beyond, "{word} {version:?}");
            assert_eq!(data(&header, 3 * TIB, Some(0), &[word.to_owned()]), Trust::ReadWrite);
        }
    }
}

#[test]
fn only_a_slot_of_the_volume_key_vouches_and_only_the_word_itself_is_accepted() {
    let mut image = formatted(&options(LuksVersion::Luks2, "aes-cbc-essiv:sha256", 32));
    image.edit(|json| {
        json["keyslots"]["1"] = json["keyslots"]["0"].clone();
        json["keyslots"]["1"]["area"]["offset"] = "294912".into();
        json["digests"]["1"] = json["digests"]["0"].clone();
        json["digests"]["1"]["keyslots"] = serde_json::json!(["1"]);
        json["digests"]["1"]["segments"] = serde_json::json!([]);
    });
    let header = image.read().unwrap();
    let of = |slot, accepted: &str| data(&header, 5 * MIB, slot, &[accepted.to_owned()]);
    assert_eq!(of(Some(0), ""), Trust::ReadWrite);
    for slot in [Some(1), Some(2), None] {
        assert_eq!(name(&of(slot, "")), "read-only", "{slot:?}");
        assert_eq!(of(slot, "aes-cbc-essiv:sha256"), Trust::ReadWrite);
        for other in ["aes-cbc-essiv:sha1", "capi:essiv(cbc(aes),sha256)-plain64", "AES-CBC-ESSIV:SHA256"] {
            assert_eq!(name(&of(slot, other)), "read-only", "{other}");
        }
    }
}

#[test]
fn worst_of_several_segments_counts() {
    let header = formatted(&options(LuksVersion::Luks2, "aes-xts-plain64", 64)).read().unwrap();
    let segment = header.segments(SegmentPolicy::default()).unwrap().remove(0);
    let with = |word: &str| DataSegment { cipher: Some(CipherSpec::parse(word).unwrap()), ..segment.clone() };
    let clear = DataSegment { cipher: None, ..segment.clone() };
    for (words, expected) in [
        (["aes-xts-plain64", "aes-xts-benbi", "aes-xts-plain64"], "read-only"),
        (["aes-xts-benbi", "aes-xts-null", "aes-xts-plain64"], "refused"),
        (["aes-xts-plain64", "aes-xts-plain64", "cipher_null-ecb"], "read-write"),
    ] {
        let mut segments = words.map(with).to_vec();
        segments.push(clear.clone());
        assert_eq!(name(&header.trust(&segments, Some(8 * MIB), Some(0), &[])), expected, "{words:?}");
    }
}

#[test]
fn messages_name_both_words_and_the_class_in_one_line() {
    let image = formatted(&options(LuksVersion::Luks2, "aes-xts-plain64", 64));
    let image = with_cipher(&image, "aes-xts-null").unwrap();
    let [by_passphrase, by_key] = trusts(&image).map(|trust| trust.unwrap().to_read().unwrap_err().to_string());
    for part in ["refused: ", "'aes-xts-null'", "so weak", "key slot 0", "'aes-xts-plain64'"] {
        assert!(by_passphrase.contains(part), "{by_passphrase}");
    }
    assert!(by_key.contains("no key slot vouches") && !by_key.contains("aes-xts-plain64"), "{by_key}");
    assert!(!by_key.contains('\n'));
}

/// By real programs, in the words that distributions have used.
#[test]
fn legacy_volumes_of_cryptsetup_stay_read_write_whatever_their_keys_go_through() {
    let Some(cryptsetup) = common::Cryptsetup::require() else { return };
    for (arguments, bits) in [
        ("--type luks1 --cipher aes-cbc-essiv:sha256", 256),
        ("--type luks2 --cipher aes-cbc-essiv:sha256 --pbkdf pbkdf2", 256),
        ("--type luks2 --cipher aes-cbc-plain64 --pbkdf pbkdf2", 256),
        ("--type luks1 --cipher aes-cbc-plain", 256),
    ] {
        let image = common::Image::sparse(20 * MIB);
        let more = format!("{arguments} --pbkdf-force-iterations 1000 --key-size {bits}");
        cryptsetup.format(&more, &image.path);
        let may = |passphrase: &[u8]| {
            let slot = image.unlock(passphrase).unwrap_or_else(|error| panic!("{arguments}: {error}")).slot;
            data(&image.header().unwrap(), 20 * MIB, Some(slot), &[])
        };
        assert_eq!(may(common::PASSPHRASE), Trust::ReadWrite, "{arguments}");
        let key = image.unlock(common::PASSPHRASE).unwrap().key;
        assert_eq!(name(&data(&image.header().unwrap(), 20 * MIB, None, &[])), "read-only", "{arguments}");
        // A key of ours, and ours in the place of theirs.
        let new = crate::edit::NewSlot {
            kdf: Some(KdfKind::Pbkdf2),
            cost: crate::format::KdfCost { iterations: Some(1000), ..crate::format::KdfCost::default() },
            ..crate::edit::NewSlot::default()
        };
        let edited = |change: &dyn Fn(&crate::edit::Edit) -> Result<(), Error>| {
            let (mut file, size) = image.open();
            change(&crate::edit::Edit::load(&mut file, size).unwrap()).unwrap();
        };
        edited(&|edit| edit.add(&key, b"added", &new)?.0.commit(&mut image.open().0, 20 * MIB).map(drop));
        assert_eq!(may(b"added"), Trust::ReadWrite, "{arguments}");
        edited(&|edit| edit.replace(0, &key, b"changed", &new)?.0.commit(&mut image.open().0, 20 * MIB).map(drop));
        assert_eq!(may(b"changed"), Trust::ReadWrite, "{arguments}");
        // A key of theirs beside ours, which they open.
        let theirs = image.file("theirs");
        std::fs::write(&theirs, b"theirs").unwrap();
        let add =
            format!("luksAddKey --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file - {}", image.path.display());
        cryptsetup.run(&add, &theirs, b"changed").success();
        assert_eq!(may(b"theirs"), Trust::ReadWrite, "{arguments}");
        assert!(cryptsetup.opens(&image.path, b"added", None), "{arguments}");
        cryptsetup.run("luksRemoveKey --key-file -", &image.path, b"changed").success();
        assert_eq!(may(b"theirs"), Trust::ReadWrite, "{arguments}");
        for version in if arguments.contains("luks1") { ["luks2", "luks1"] } else { ["luks1", "luks2"] } {
            // A hash and sectors that LUKS1 cannot have keep it as it is.
            cryptsetup.run(&format!("convert --type {version}"), &image.path, b"");
            assert_eq!(may(b"added"), Trust::ReadWrite, "{arguments} {version}");
            assert_eq!(may(b"theirs"), Trust::ReadWrite, "{arguments} {version}");
        }
    }
}
