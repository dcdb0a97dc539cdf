//! Features that one version has and the other has not.

use std::io::Cursor;

use serde_json::{Value, json};

use crate::format::{FormatOptions, KdfKind, LuksVersion};
use crate::testing::{Image, cheap_options};
use crate::{Error, ErrorKind};

fn image(change: impl FnOnce(&mut FormatOptions)) -> Image {
    let mut options = cheap_options(LuksVersion::Luks2);
    options.kdf = Some(KdfKind::Pbkdf2);
    options.cost.iterations = Some(1000);
    options.key_len = 32;
    options.sector_size = Some(512);
    options.data_offset = Some(2 << 20);
    change(&mut options);
    Image::format((2 << 20) + 4096, &options)
}

fn error_of(image: &Image, to: LuksVersion) -> Error {
    image.load().unwrap().convert(to, &mut image.device(), image.size()).err().unwrap()
}

#[track_caller]
fn refused(image: &Image, why: &str) {
    let error = error_of(image, LuksVersion::Luks1);
    assert_eq!(error.kind(), ErrorKind::Parameters, "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn what_luks1_cannot_have_is_refused_by_name() {
    refused(&image(|it| it.sector_size = Some(1024)), "sectors have 1024 bytes");
    refused(&image(|it| it.kdf = Some(KdfKind::Argon2id)), "key slot 0 has another key derivation");
    refused(&image(|it| it.label = "x".into()), "label");
    refused(&image(|it| it.data_offset = Some(1 << 20)), "no room");
    refused(&image(|it| it.slot_cipher = Some(("serpent-xts-plain64".into(), 64))), "key slot 0 has another cipher");
    let edited = |change: &dyn Fn(&mut Value)| {
        let mut image = image(|_| {});
        image.edit(change);
        image
    };
    let token = json!({ "type": "x", "keyslots": [] });
    refused(&edited(&|it| it["tokens"]["0"] = token.clone()), "it has tokens");
    refused(&edited(&|it| it["config"]["flags"] = json!(["allow-discards"])), "flag");
    refused(&edited(&|it| it["segments"]["0"]["size"] = "4096".into()), "up to the end");
    refused(&edited(&|it| it["keyslots"]["0"]["af"]["hash"] = "sha512".into()), "another hash");
    refused(&edited(&|it| it["keyslots"]["0"]["priority"] = 2.into()), "priority");
    let renamed = |it: &mut Value| {
        it["keyslots"] = json!({ "8": it["keyslots"]["0"].clone() });
        it["digests"]["0"]["keyslots"] = json!(["8"]);
    };
    refused(&edited(&renamed), "key slot 8");
    let mut damaged = image(|_| {});
    damaged.bytes[5000] ^= 1;
    refused(&damaged, "repair");
}

/// Its file ends long before its data would begin.
fn short_and_detached() -> Image {
    let mut image = image(|it| {
        it.detached = true;
        it.data_offset = Some(16 << 20);
    });
    image.bytes.truncate(600 << 10);
    image
}

#[test]
fn detached_header_whose_file_has_no_room_for_eight_slots_is_refused() {
    refused(&short_and_detached(), "no room");
}

#[test]
fn header_that_would_not_open_is_not_written() {
    let image = short_and_detached();
    let mut longer = image.clone();
    longer.bytes.resize(2 << 20, 0);
    let edit = longer.load().unwrap();
    let change = edit.convert(LuksVersion::Luks1, &mut longer.device(), 2 << 20).unwrap();
    let mut device = Cursor::new(image.bytes.clone());
    let error = change.commit(&mut device, 600 << 10).unwrap_err();
    assert!(error.to_string().contains("would not open"), "{error}");
    assert!(device.into_inner() == image.bytes);
}

#[test]
fn same_version_is_refused() {
    let image = image(|_| {});
    assert_eq!(error_of(&image, LuksVersion::Luks2).to_string(), "it is LUKS2 already");
    assert_eq!(error_of(&Image::luks1(), LuksVersion::Luks1).to_string(), "it is LUKS1 already");
}

/// They would lie where LUKS2 has its key slots, the moved one first.
#[test]
fn luks1_with_metadata_of_luksmeta_behind_its_key_slots_is_left_alone() {
    let mut image = Image::luks1();
    // What else lies there, such as old key material, is in nobody's way.
    let behind = 2056 * 512;
    image.bytes[behind..behind + 4096].fill(7);
    assert!(image.load().unwrap().convert(LuksVersion::Luks2, &mut image.device(), image.size()).is_ok());
    image.bytes[behind..behind + 8].copy_from_slice(b"LUKSMETA");
    let error = error_of(&image, LuksVersion::Luks2);
    assert_eq!(error.kind(), ErrorKind::Parameters, "{error}");
    assert!(error.to_string().contains("luksmeta"), "{error}");
}
