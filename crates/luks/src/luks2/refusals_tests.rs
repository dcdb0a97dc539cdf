//! Headers that are sound but must not, or can not, be opened: `info` works, opening is refused.

use std::time::Duration;

use serde_json::{Value, json};

use crate::format::{FormatOptions, LuksVersion};
use crate::testing::{Image, cheap_options};
use crate::{Error, ErrorKind, KdfLimits, SegmentPolicy, UnlockOptions};

fn edited(change: impl FnOnce(&mut Value)) -> Image {
    let mut image = Image::luks2();
    image.edit(change);
    image
}

/// Why the segment is refused; `info` must work.
#[track_caller]
fn segment_error(image: &Image) -> Error {
    let header = image.read().unwrap();
    serde_json::to_string(&header.info()).unwrap();
    let policy = SegmentPolicy::default();
    header.segments(policy).expect_err("the segment should be refused")
}

#[track_caller]
fn unlock_error(image: &Image, options: &UnlockOptions) -> Error {
    image.unlock(options).err().expect("unlocking should fail")
}

#[test]
fn headers_that_can_not_be_opened_are_refused_by_name() {
    use ErrorKind::{Device, Parameters};
    let requiring = |name| edited(|json| json["config"]["requirements"] = json!({"mandatory": [name]}));
    let segment = |member, value| edited(|json| json["segments"]["0"][member] = value);
    let flagged = |flag| {
        edited(|json| {
            let mut segment = json["segments"]["0"].clone();
            json["segments"]["0"]["size"] = json!("4096");
            segment["offset"] = json!("1052672");
            segment["flags"] = json!([flag]);
            json["segments"]["1"] = segment;
            json["digests"]["0"]["segments"] = json!(["0", "1"]);
        })
    };
    let begun = edited(|json| {
        json["keyslots"]["1"] = json!({
            "type": "reencrypt", "mode": "reencrypt", "direction": "forward", "key_size": 1,
            "area": {"type": "none", "offset": "290816", "size": "4096"},
        });
    });
    let integrity = json!({"type": "hmac(sha256)", "journal_encryption": "none", "journal_integrity": "none"});
    for (image, kind, expected, opens) in [
        (requiring("time-travel"), Device, "requires 'time-travel'", false),
        (requiring("opal"), Device, "the header requires encryption by the drive itself (OPAL)", false),
        (requiring("inline-hw-tags"), Device, "the header requires integrity tags that the drive keeps", false),
        (requiring("online-reencrypt"), Device, "reencryption in progress (requirement 'online-reencrypt')", false),
        (
            requiring("online-reencrypt-v2"),
            Device,
            "reencryption in progress (requirement 'online-reencrypt-v2')",
            false,
        ),
        (requiring("offline-reencrypt"), Device, "reencryption in progress (requirement 'offline-reencrypt')", false),
        (begun, Device, "key slot 1 is of type 'reencrypt'", false),
        (flagged("backup-previous"), Device, "reencryption in progress", true),
        (flagged("in-reencryption"), Device, "reencryption in progress", true),
        (segment("iv_tweak", json!("8")), Device, "segments.0.iv_tweak: 8", true),
        (segment("type", json!("linear")), Parameters, "not supported yet: segment type 'linear'", true),
        (segment("integrity", integrity), Parameters, "not supported yet: integrity ('hmac(sha256)')", true),
        (segment("encryption", json!("paes-xts-plain64")), Parameters, "not supported yet: cipher 'xts(paes)'", true),
        (segment("encryption", json!("aes-xts-own")), Parameters, "not supported yet: IV mode 'own'", true),
        (
            segment("encryption", json!("anubis-xts-plain64")),
            Parameters,
            "not supported yet: cipher anubis-xts-plain64",
            true,
        ),
    ] {
        let mut errors = vec![segment_error(&image)];
        errors.extend((!opens).then(|| unlock_error(&image, &UnlockOptions::default())));
        for error in errors {
            assert!(error.to_string().contains(expected), "{expected}: {error}");
            assert_eq!(error.kind(), kind, "{expected}");
        }
    }
    let other = segment("encryption", json!("anubis-xts-plain64"));
    assert_eq!(other.read().unwrap().info().segments[0].cipher.as_deref(), Some("anubis-xts-plain64"));
}

#[test]
fn null_cipher_for_the_data_is_refused_unless_allowed() {
    let image = edited(|json| json["segments"]["0"]["encryption"] = json!("cipher_null-ecb"));
    let error = segment_error(&image);
    assert!(matches!(error, Error::NullCipher(_)), "{error}");
    assert_eq!(error.kind(), ErrorKind::Device);
    let policy = SegmentPolicy { allow_null_cipher: true, ..SegmentPolicy::default() };
    assert!(image.read().unwrap().segments(policy).unwrap()[0].cipher.as_ref().unwrap().is_null());
}

#[test]
fn null_cipher_for_a_key_slot_is_refused_unless_allowed() {
    let image = edited(|json| json["keyslots"]["0"]["area"]["encryption"] = json!("cipher_null-ecb"));
    let error = unlock_error(&image, &UnlockOptions::default());
    assert!(matches!(error, Error::NullCipher(_)), "{error}");
    let allowed = UnlockOptions { allow_null_cipher: true, ..UnlockOptions::default() };
    // The area is noise without its cipher, so what it holds is no key.
    assert!(!matches!(unlock_error(&image, &allowed), Error::NullCipher(_)));
}

#[test]
fn detached_header_alone_is_refused_as_data() {
    let image = edited(|json| json["segments"]["0"]["offset"] = json!("0"));
    let error = segment_error(&image);
    assert!(matches!(error, Error::DetachedHeader), "{error}");
    let policy = SegmentPolicy { detached: true, ..SegmentPolicy::default() };
    assert_eq!(image.read().unwrap().segments(policy).unwrap()[0].offset, 0);
}

#[test]
fn wrong_passphrase_gives_no_key_and_damage_to_the_slot_is_told_as_the_same() {
    let mut image = Image::luks2();
    image.bytes[0x8000 + 1000] ^= 1;
    let error = unlock_error(&image, &UnlockOptions::default());
    assert_eq!(error.to_string(), "No key available with this passphrase.");
    assert_eq!(error.kind(), ErrorKind::NoKey);
}

#[test]
fn named_slot_that_is_not_in_use_is_a_wrong_parameter() {
    let options = UnlockOptions { slot: Some(7), ..UnlockOptions::default() };
    let error = unlock_error(&Image::luks2(), &options);
    assert_eq!(error.to_string(), "key slot 7 is not in use for this volume");
    assert_eq!(error.kind(), ErrorKind::Parameters);
}

#[test]
fn ignored_slot_opens_only_when_it_is_named() {
    let image = edited(|json| json["keyslots"]["0"]["priority"] = json!(0));
    let error = unlock_error(&image, &UnlockOptions::default());
    assert_eq!(
        error.to_string(),
        "every key slot of this volume has the priority \"ignore\", so none is tried unless it is named; there are: 0"
    );
    assert_eq!(error.kind(), ErrorKind::Parameters);
    let named = UnlockOptions { slot: Some(0), ..UnlockOptions::default() };
    assert_eq!(image.unlock(&named).unwrap().slot, 0);
}

#[test]
fn preferred_slots_come_first_then_the_lowest_number() {
    let image = edited(|json| {
        let slot = json["keyslots"]["0"].clone();
        for (number, priority) in [("1", 2), ("2", 0), ("3", 2)] {
            let mut slot = slot.clone();
            let offset = 32768 + 258_048 * number.parse::<u64>().unwrap();
            slot["area"]["offset"] = offset.to_string().into();
            slot["area"]["size"] = json!("256000");
            slot["priority"] = json!(priority);
            json["keyslots"][number] = slot;
        }
        json["config"]["keyslots_size"] = json!("1032192");
        json["segments"]["0"]["offset"] = json!("1073152");
        json["digests"]["0"]["keyslots"] = json!(["0", "1", "2", "3"]);
    });
    // Make room for the fourth area: the device grows, its data moves.
    let mut image = image;
    image.bytes.resize(2 << 20, 0);
    let header = image.read().unwrap();
    let order = |named| -> Vec<u32> {
        let options = UnlockOptions { slot: named, ..UnlockOptions::default() };
        let slots = header.inner().slots_to_try(&options).unwrap();
        slots.into_iter().map(|(number, _)| number).collect()
    };
    assert_eq!(order(None), [1, 3, 0]);
    assert_eq!(order(Some(2)), [2]);
}

/// Only its own program knows whether it needs a digest; the volume opens with the others.
#[test]
fn slot_of_another_kind_needs_no_digest() {
    for digests in [0, 1, 2] {
        let image = edited(|json| {
            let mut other = json["keyslots"]["0"].clone();
            other["type"] = json!("vendor");
            other["area"]["offset"] = json!("290816");
            other["priority"] = json!(2);
            json["keyslots"]["1"] = other;
            for number in 0..digests {
                let mut digest = json["digests"]["0"].clone();
                digest["segments"] = json!([]);
                digest["keyslots"] = json!(["1"]);
                json["digests"][(number + 1).to_string()] = digest;
            }
        });
        assert_eq!(image.unlock(&UnlockOptions::default()).unwrap().slot, 0);
        assert_eq!(image.read().unwrap().info().keyslots.len(), 2);
    }
}

#[test]
fn unbound_slot_is_not_tried() {
    let image = edited(|json| {
        let mut digest = json["digests"]["0"].clone();
        digest["segments"] = json!([]);
        json["digests"]["0"]["keyslots"] = json!([]);
        json["digests"]["1"] = digest;
    });
    let error = unlock_error(&image, &UnlockOptions::default());
    assert!(error.to_string().contains("all key slots are empty"), "{error}");
}

#[test]
fn slot_with_an_unknown_hash_or_kdf_is_refused_by_name_and_hides_no_other() {
    let hash = edited(|json| json["keyslots"]["0"]["af"]["hash"] = json!("md4"));
    let kdf = edited(|json| json["keyslots"]["0"]["kdf"]["type"] = json!("scrypt"));
    let messages = [hash, kdf].map(|image| unlock_error(&image, &UnlockOptions::default()).to_string());
    assert_eq!(messages[0], "not supported yet: hash 'md4'");
    assert_eq!(messages[1], "not supported yet: key derivation function 'scrypt'");

    let two = edited(|json| {
        let mut other = json["keyslots"]["0"].clone();
        json["keyslots"]["0"]["kdf"]["type"] = json!("scrypt");
        json["keyslots"]["0"]["area"]["offset"] = json!("290816");
        other["priority"] = json!(1);
        json["keyslots"]["1"] = other;
        json["digests"]["0"]["keyslots"] = json!(["0", "1"]);
    });
    assert_eq!(two.unlock(&UnlockOptions::default()).unwrap().slot, 1);
}

#[test]
fn cost_beyond_the_limits_is_refused_without_being_paid() {
    let image = edited(|json| {
        json["keyslots"]["0"]["kdf"]["memory"] = json!(4 << 20);
        json["keyslots"]["0"]["kdf"]["time"] = json!(u32::MAX);
    });
    let started = std::time::Instant::now();
    let error = unlock_error(&image, &UnlockOptions::default());
    assert!(matches!(error, Error::CostLimit { .. }), "{error}");
    assert!(started.elapsed().as_secs() < 5);
}

/// Two slots that cost the same and that no passphrase opens.
fn two_costly_slots() -> Image {
    edited(|json| {
        json["keyslots"]["0"]["kdf"]["memory"] = json!(2048);
        let mut other = json["keyslots"]["0"].clone();
        other["area"]["offset"] = json!("290816");
        other["priority"] = json!(2);
        json["keyslots"]["1"] = other;
        json["digests"]["0"]["keyslots"] = json!(["0", "1"]);
    })
}

#[test]
fn limits_are_for_all_slots_together() {
    let two = two_costly_slots();
    let options = |slot, time| UnlockOptions { slot, limits: KdfLimits { time }, ..UnlockOptions::default() };
    let header = two.read().unwrap();
    let one = header.unlock_time(&options(Some(0), Duration::MAX));
    assert!(one > Duration::ZERO);
    assert_eq!(header.unlock_time(&options(None, Duration::MAX)), one * 2);
    // What is refused takes no time.
    assert_eq!(header.unlock_time(&options(None, one)), one);
    let error = unlock_error(&two, &options(None, one * 2));
    assert!(matches!(error, Error::NoKey), "{error}");
    let error = unlock_error(&two, &options(None, one));
    assert!(matches!(error, Error::CostLimit { .. }), "{error}");
}

#[test]
fn digest_cost_beyond_the_limits_is_refused_for_a_given_key_too() {
    let image = edited(|json| json["digests"]["0"]["iterations"] = json!(u32::MAX));
    let error = image.read().unwrap().verify_volume_key(&[0; 64], KdfLimits::default()).unwrap_err();
    assert!(matches!(error, Error::CostLimit { .. }), "{error}");
}

#[test]
fn volume_key_is_checked_to_its_end_and_no_further() {
    let options = FormatOptions { key_len: 32, data_offset: Some(1 << 20), ..cheap_options(LuksVersion::Luks2) };
    for image in [Image::luks2(), Image::format(2 << 20, &options)] {
        let key = image.unlock(&UnlockOptions::default()).unwrap().key.to_vec();
        let header = image.read().unwrap();
        header.verify_volume_key(&key, KdfLimits::default()).unwrap();
        for other in [key[..key.len() - 1].to_vec(), [&key[..], &[0; 32]].concat()] {
            let error = header.verify_volume_key(&other, KdfLimits::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoKey);
        }
    }
}

#[test]
fn passphrase_beyond_8_mib_is_refused() {
    let header = Image::luks2().read().unwrap();
    let mut device = std::io::Cursor::new(Vec::new());
    let long = vec![b'x'; (8 << 20) + 1];
    let error = header.unlock(&mut device, &long, &UnlockOptions::default()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Parameters);
}

#[test]
fn flags_of_the_header_are_told() {
    let image = edited(|json| {
        json["config"]["flags"] = json!(["allow-discards", "no-read-workqueue", "new-flag"]);
    });
    assert_eq!(image.read().unwrap().flags(), ["allow-discards", "no-read-workqueue", "new-flag"]);
}
