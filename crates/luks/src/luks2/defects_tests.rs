//! One test per defect of LUKS2 metadata, in both copies and with correct checksums: what a
//! hostile disk brings. Every one is refused when the header is read, as a device error with a
//! message that says where the defect is; but a key slot or a token that nobody needs is passed over with
//! a warning. The list follows cryptsetup's own header generators.

use serde_json::{Value, json};

use crate::luks2::binary::HeaderCopy;
use crate::testing::Image;
use crate::{Error, ErrorKind, UnlockOptions};

#[track_caller]
fn refused(image: &Image, expected: &str) {
    let error = image.read().expect_err("the header should be refused");
    let message = error.to_string();
    assert!(message.contains(expected), "{message}");
    assert!(!message.contains('\n'), "{message}");
    assert_eq!(error.kind(), ErrorKind::Device, "{message}");
}

/// `defect!(name: |json| change => "part of the message")`
macro_rules! defect {
    ($($name:ident: |$json:ident| $change:expr => $expected:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let mut image = Image::luks2();
                image.edit(|$json: &mut Value| { $change; });
                refused(&image, $expected);
            }
        )*
    };
}

fn remove(json: &mut Value, path: &str, key: &str) {
    let object = json.pointer_mut(path).and_then(Value::as_object_mut).unwrap();
    object.shift_remove(key).unwrap();
}

/// A second key slot whose area is moved by `shift` bytes from that of the first.
fn add_slot(json: &mut Value, shift: u64) {
    let mut slot = json["keyslots"]["0"].clone();
    slot["area"]["offset"] = (32768 + shift).to_string().into();
    json["keyslots"]["1"] = slot;
    json["digests"]["0"]["keyslots"] = json!(["0", "1"]);
}

#[test]
fn image_is_sound_before_it_is_broken_and_so_are_areas_that_only_touch() {
    for change in [|_: &mut Value| (), |json: &mut Value| add_slot(json, 258_048)] {
        let mut image = Image::luks2();
        image.edit(change);
        image.read().unwrap();
    }
}

defect! {
    keyslots_missing: |json| remove(json, "", "keyslots") => "no \"keyslots\"";
    tokens_missing: |json| remove(json, "", "tokens") => "no \"tokens\"";
    segments_missing: |json| remove(json, "", "segments") => "no \"segments\"";
    digests_missing: |json| remove(json, "", "digests") => "no \"digests\"";
    config_missing: |json| remove(json, "", "config") => "no \"config\"";
    keyslots_not_an_object: |json| json["keyslots"] = json!([]) => "keyslots: not an object";
    keyslot_number_not_a_number: |json| json["keyslots"]["a\nb"] = json!({}) => "keyslots: 'a\\nb' is no valid number";
    keyslot_number_too_high: |json| json["keyslots"]["32"] = json!({}) => "keyslots: '32' is no valid number";

    pbkdf2_iterations_too_few: |json| json["digests"]["0"]["iterations"] = json!(0) => "0 PBKDF2 iterations";
    pbkdf2_iterations_past_32_bits: |json| json["digests"]["0"]["iterations"] = json!(1_u64 << 32)
        => "digests.0.iterations: not a number";

    segments_empty: |json| { json["segments"] = json!({}); json["digests"]["0"]["segments"] = json!([]) }
        => "segments: there are none";
    segment_type_missing: |json| remove(json, "/segments/0", "type") => "segments.0: no \"type\"";
    segment_type_not_a_string: |json| json["segments"]["0"]["type"] = json!(42) => "segments.0.type";
    segment_offset_missing: |json| remove(json, "/segments/0", "offset") => "segments.0: no \"offset\"";
    segment_offset_not_a_number: |json| json["segments"]["0"]["offset"] = json!("xyz") => "segments.0.offset";
    segment_offset_a_json_number: |json| json["segments"]["0"]["offset"] = json!(1_048_576) => "segments.0.offset";
    segment_offset_off_a_sector: |json| json["segments"]["0"]["offset"] = json!("1048577") => "not a multiple of 512";
    segment_in_the_header: |json| json["segments"]["0"]["offset"] = json!("65536") => "reaches into the data";
    segment_size_missing: |json| remove(json, "/segments/0", "size") => "segments.0: no \"size\"";
    segment_size_not_a_number: |json| json["segments"]["0"]["size"] = json!("automatic") => "segments.0.size";
    segment_size_zero: |json| json["segments"]["0"]["size"] = json!("0") => "an empty segment";
    segment_size_negative: |json| json["segments"]["0"]["size"] = json!("-4096") => "segments.0.size";
    segment_size_past_64_bits: |json| json["segments"]["0"]["size"] = json!("18446744073709551616")
        => "segments.0.size";
    segment_size_off_the_cipher_sector: |json| json["segments"]["0"]["size"] = json!("512")
        => "segments.0.size: not a multiple";
    segment_encryption_missing: |json| remove(json, "/segments/0", "encryption") => "no \"encryption\"";
    segment_encryption_empty: |json| json["segments"]["0"]["encryption"] = json!("") => "segments.0.encryption";
    segment_encryption_not_a_string: |json| json["segments"]["0"]["encryption"] = json!({}) => "segments.0.encryption";
    segment_iv_tweak_missing: |json| remove(json, "/segments/0", "iv_tweak") => "no \"iv_tweak\"";
    segment_iv_tweak_not_a_number: |json| json["segments"]["0"]["iv_tweak"] = json!("dynamic") => "segments.0.iv_tweak";
    segment_sector_size_missing: |json| remove(json, "/segments/0", "sector_size") => "no \"sector_size\"";
    segment_sector_size_a_string: |json| json["segments"]["0"]["sector_size"] = json!("4096")
        => "segments.0.sector_size";
    segment_sector_size_not_a_power_of_two: |json| json["segments"]["0"]["sector_size"] = json!(1023)
        => "segments.0.sector_size: not 512";
    segment_sector_size_too_large: |json| json["segments"]["0"]["sector_size"] = json!(8192)
        => "segments.0.sector_size: not 512";
    segment_flags_not_an_array: |json| json["segments"]["0"]["flags"] = json!("backup-final")
        => "segments.0.flags: not an array";
    segment_flags_not_strings: |json| json["segments"]["0"]["flags"] = json!([1])
        => "segments.0.flags: not an array of strings";
    segments_overlapping: |json| json["segments"]["1"] = json["segments"]["0"].clone() => "overlaps segment";

    digest_of_missing_keyslot: |json| json["digests"]["0"]["keyslots"] = json!(["0", "16"])
        => "digests.0.keyslots: '16' does not exist";
    digest_of_missing_segment: |json| json["digests"]["0"]["segments"] = json!(["0", "5"])
        => "digests.0.segments: '5' does not exist";
    digest_names_a_keyslot_twice: |json| json["digests"]["0"]["keyslots"] = json!(["0", "0"]) => "named twice";
    digest_value_too_short: |json| json["digests"]["0"]["digest"] = json!("AAAA") => "digests.0.digest: its length";
    digest_salt_missing: |json| remove(json, "/digests/0", "salt") => "digests.0: no \"salt\"";
    json_size_too_large: |json| json["config"]["json_size"] = json!("16384") => "config.json_size: 16384";
    json_size_missing: |json| remove(json, "/config", "json_size") => "config: no \"json_size\"";
    keyslots_size_reaches_into_the_data: |json| json["config"]["keyslots_size"] = json!("1048576")
        => "reaches into the data";
    keyslots_size_not_aligned: |json| json["config"]["keyslots_size"] = json!("983552")
        => "config.keyslots_size: 983552 is not a multiple";
    keyslots_size_huge: |json| json["config"]["keyslots_size"] = json!("18446744073709547520")
        => "config.keyslots_size";
    flags_not_strings: |json| json["config"]["flags"] = json!([true]) => "config.flags";
    requirements_not_an_object: |json| json["config"]["requirements"] = json!(["x"])
        => "config.requirements: not an object";
    mandatory_not_strings: |json| json["config"]["requirements"] = json!({"mandatory": [1]})
        => "config.requirements.mandatory";
}

/// `odd!(name: |json| change => "part of the message")`, where key slot 0 or a token is changed: the volume opens by another
/// key slot, and the header is not changed.
macro_rules! odd {
    ($($name:ident: |$json:ident| $change:expr => $expected:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let mut image = Image::luks2();
                image.edit(|$json: &mut Value| {
                    $json["keyslots"]["7"] = $json["keyslots"]["0"].clone();
                    $json["keyslots"]["0"]["area"]["offset"] = json!("290816");
                    $json["digests"]["0"]["keyslots"] = json!(["0", "7"]);
                    $change;
                });
                passed_over(&image, $expected);
                assert_eq!(image.unlock(&UnlockOptions::default()).unwrap().slot, 7);
                let repaired = repaired(&image).unwrap();
                assert!(repaired.read().unwrap().warnings().is_empty());
                assert_eq!(repaired.unlock(&UnlockOptions::default()).unwrap().slot, 7);
            }
        )*
    };
}

/// Checks that the defect is told, and nothing is written.
#[track_caller]
fn passed_over(image: &Image, expected: &str) {
    let header = image.read().unwrap();
    let warnings = header.warnings().join("\n");
    assert!(warnings.contains(expected), "{expected}: {warnings}");
    let edit = image.load().unwrap();
    for refused in [edit.erase().err(), edit.set_label(Some("x"), None).err(), edit.wipe_unused().err()] {
        let refused = refused.expect("the header should be left alone");
        assert!(matches!(refused, Error::Odd { .. }) && refused.to_string().contains(expected), "{refused}");
    }
}

/// Without what is odd, as somebody must ask for.
fn repaired(image: &Image) -> Result<Image, Error> {
    assert!(image.load().unwrap().repair(false).unwrap().is_none());
    image.repaired(true)
}

odd! {
    keyslot_not_an_object: |json| json["keyslots"]["0"] = json!(1) => "keyslots.0: not an object";
    keyslot_type_missing: |json| remove(json, "/keyslots/0", "type") => "keyslots.0: no \"type\"";
    keyslot_key_size_zero: |json| json["keyslots"]["0"]["key_size"] = json!(0)
        => "keyslots.0.key_size: 0 bytes, 1 to 512 are possible";
    keyslot_key_size_huge: |json| json["keyslots"]["0"]["key_size"] = json!(1 << 30)
        => "keyslots.0.key_size: 1073741824 bytes, 1 to 512 are possible";
    keyslot_key_size_negative: |json| json["keyslots"]["0"]["key_size"] = json!(-64)
        => "keyslots.0.key_size: not a number from 0";
    keyslot_key_size_a_string: |json| json["keyslots"]["0"]["key_size"] = json!("64")
        => "keyslots.0.key_size: not a number";
    keyslot_priority_unknown: |json| json["keyslots"]["0"]["priority"] = json!(3) => "keyslots.0: priority 3";
    keyslot_af_missing: |json| remove(json, "/keyslots/0", "af") => "keyslots.0: no \"af\"";
    keyslot_af_type_unknown: |json| json["keyslots"]["0"]["af"]["type"] = json!("luks9")
        => "keyslots.0.af.type: 'luks9' is not";
    keyslot_stripes_too_many: |json| json["keyslots"]["0"]["af"]["stripes"] = json!(4001)
        => "keyslots.0.af.stripes: only 4000";
    keyslot_stripes_zero: |json| json["keyslots"]["0"]["af"]["stripes"] = json!(0)
        => "keyslots.0.af.stripes: only 4000";
    keyslot_af_hash_empty: |json| json["keyslots"]["0"]["af"]["hash"] = json!("") => "keyslots.0.af.hash: not a string";
    keyslot_area_missing: |json| remove(json, "/keyslots/0", "area") => "keyslots.0: no \"area\"";
    keyslot_area_type_unknown: |json| json["keyslots"]["0"]["area"]["type"] = json!("cooked")
        => "keyslots.0.area.type: 'cooked'";
    keyslot_area_offset_missing: |json| remove(json, "/keyslots/0/area", "offset") => "keyslots.0.area: no \"offset\"";
    keyslot_area_too_small_for_the_key: |json| json["keyslots"]["0"]["area"]["size"] = json!("255488")
        => "keyslots.0.area: too small";
    keyslot_area_key_size_huge: |json| json["keyslots"]["0"]["area"]["key_size"] = json!(513)
        => "keyslots.0.area.key_size: 513 bytes";
    keyslot_area_in_the_json: |json| json["keyslots"]["0"]["area"]["offset"] = json!("4096")
        => "keyslots.0.area: not inside";
    keyslot_area_in_the_secondary_copy: |json| json["keyslots"]["0"]["area"]["offset"] = json!("32256")
        => "keyslots.0.area: not inside";
    keyslot_area_in_the_data: |json| json["keyslots"]["0"]["area"]["offset"] = json!("1048576")
        => "keyslots.0.area: not inside";
    keyslot_area_past_64_bits: |json| json["keyslots"]["0"]["area"]["offset"] = json!("18446744073709551615")
        => "keyslots.0.area: not inside";
    argon2_memory_of_terabytes: |json| json["keyslots"]["0"]["kdf"]["memory"] = json!(u32::MAX)
        => "at most 4194304 KiB (4 GiB)";
    argon2_memory_past_32_bits: |json| json["keyslots"]["0"]["kdf"]["memory"] = json!(1_u64 << 40)
        => "keyslots.0.kdf.memory: not a number";
    argon2_lanes_too_many: |json| json["keyslots"]["0"]["kdf"]["cpus"] = json!(5) => "5 Argon2 lanes";
    argon2_lanes_zero: |json| json["keyslots"]["0"]["kdf"]["cpus"] = json!(0) => "0 Argon2 lanes";
    argon2_time_zero: |json| json["keyslots"]["0"]["kdf"]["time"] = json!(0) => "time cost of 0";
    argon2_memory_too_small: |json| json["keyslots"]["0"]["kdf"]["memory"] = json!(7) => "too little";
    argon2_time_fractional: |json| json["keyslots"]["0"]["kdf"]["time"] = json!(1.5)
        => "keyslots.0.kdf.time: not a number";
    kdf_salt_too_short: |json| json["keyslots"]["0"]["kdf"]["salt"] = json!("AAAA") => "salt: not 32 bytes";
    kdf_salt_not_base64: |json| json["keyslots"]["0"]["kdf"]["salt"] = json!("!!!!") => "salt: not base64";
    kdf_missing: |json| remove(json, "/keyslots/0", "kdf") => "keyslots.0: no \"kdf\"";
    token_of_missing_keyslot: |json| json["tokens"]["0"] = json!({"type": "x", "keyslots": ["9"]})
        => "tokens.0.keyslots: '9' does not exist";
    token_type_missing: |json| json["tokens"]["0"] = json!({"keyslots": []}) => "tokens.0: no \"type\"";
    token_keyslots_missing: |json| json["tokens"]["0"] = json!({"type": "x"}) => "tokens.0: no \"keyslots\"";
}

#[test]
fn key_slots_that_lie_over_each_other_are_both_tried_and_not_changed() {
    for (shift, expected) in [
        (0, "keyslots.1.area: overlaps that of key slot 0"),
        (131_072, "keyslots.1.area: overlaps"),
        (258_047, "keyslots.1.area: overlaps"),
    ] {
        let mut image = Image::luks2();
        image.edit(|json| add_slot(json, shift));
        passed_over(&image, expected);
        assert_eq!(image.unlock(&UnlockOptions::default()).unwrap().slot, 0);
        assert!(matches!(repaired(&image), Err(Error::Repair(_))));
    }
}

/// Only a passphrase is of no use then.
#[test]
fn key_slots_that_belong_to_no_key_or_to_two_are_passed_over() {
    let of = |change: fn(&mut Value)| {
        let mut image = Image::luks2();
        image.edit(change);
        image
    };
    let none = of(|json| json["digests"]["0"]["keyslots"] = json!([]));
    let two = of(|json| {
        json["digests"]["1"] = json["digests"]["0"].clone();
        json["digests"]["1"]["segments"] = json!([]);
    });
    let all = of(|json| json["config"]["keyslots_size"] = json!("4096"));
    for (image, expected) in
        [(none, "keyslots.0: 0 digests"), (two, "keyslots.0: 2 digests"), (all, "keyslots.0.area: not inside")]
    {
        passed_over(&image, expected);
        let error = image.unlock(&UnlockOptions::default()).err().unwrap();
        assert!(matches!(error, Error::NoKeySlot), "{error}");
        stays(&image);
    }
}

/// Nobody else has its salt.
#[track_caller]
fn stays(image: &Image) {
    let edit = image.load().unwrap();
    let refused = edit.set_label(Some("x"), None).err().unwrap();
    assert!(matches!(refused, Error::Odd { is_removable: false, .. }), "{refused}");
    assert!(!refused.to_string().contains("opens all the same"), "{refused}");
    let error = repaired(image).err().unwrap();
    assert!(matches!(error, Error::Repair(_)), "{error}");
}

#[test]
fn last_key_slot_is_not_taken_out_because_it_is_not_understood() {
    for change in [
        |json: &mut Value| json["keyslots"]["0"]["priority"] = json!(3),
        |json: &mut Value| json["keyslots"]["0"]["af"]["type"] = json!("luks9"),
        // Another one keeps another key.
        |json: &mut Value| {
            add_slot(json, 258_048);
            json["keyslots"]["0"]["priority"] = json!(3);
            json["digests"]["1"] = json["digests"]["0"].clone();
            json["digests"]["0"]["keyslots"] = json!(["0"]);
            json["digests"]["1"]["keyslots"] = json!(["1"]);
            json["digests"]["1"]["segments"] = json!([]);
        },
    ] {
        let mut image = Image::luks2();
        image.edit(change);
        stays(&image);
        // A token is no key.
        image.edit(|json| json["tokens"]["0"] = json!(7));
        stays(&image);
    }
    let mut token = Image::luks2();
    token.edit(|json| {
        json["keyslots"] = json!({});
        json["digests"]["0"]["keyslots"] = json!([]);
        json["tokens"]["0"] = json!(7);
    });
    assert!(repaired(&token).unwrap().read().unwrap().warnings().is_empty());
}

#[test]
fn what_is_odd_stays_where_force_was_for_something_else() {
    let mut image = Image::luks2();
    image.edit(|json| {
        add_slot(json, 258_048);
        json["keyslots"]["1"]["priority"] = json!(3);
    });
    let json = image.json();
    image.rewrite(HeaderCopy::Secondary, b"{}", |binary| binary.epoch = 99);
    let image = image.repaired(true).unwrap();
    assert_eq!(image.json(), json);
    let repaired = repaired(&image).unwrap();
    assert!(repaired.json()["keyslots"].get("1").is_none());
}

/// The area of a key slot of reencryption says where the data is.
#[test]
fn key_slot_of_reencryption_that_is_not_understood_is_refused() {
    for area in [json!({"type": "none"}), json!({"type": "none", "offset": "0", "size": "0"})] {
        let mut image = Image::luks2();
        image.edit(|json| json["keyslots"]["1"] = json!({"type": "reencrypt", "key_size": 1, "area": area}));
        refused(&image, "keyslots.1.area");
    }
}

#[test]
fn json_area_is_refused_unless_it_holds_one_object_and_zeros() {
    let json = Image::luks2().json();
    let compact = json.to_string();
    let of = |area: &[u8]| {
        let mut image = Image::luks2();
        image.set_json(area);
        image
    };
    let full = |with, last| {
        let mut area = compact.clone().into_bytes();
        area.resize(12288 - 1, with);
        area.push(last);
        of(&area)
    };
    refused(&full(b' ', b' '), "no terminating zero");
    refused(&full(0, 1), "other bytes after the JSON");
    refused(&of(format!("{compact}\0{{").as_bytes()), "other bytes after the JSON");
    refused(&of(format!(" {compact}").as_bytes()), "does not start with '{'");
    refused(&of(b""), "does not start with '{'");
    refused(&of(&compact.as_bytes()[..compact.len() - 1]), "malformed");
    refused(&of(b"{\"keyslots\":{\"\xff\":{}}}"), "is no valid number");
    refused(&of(format!("{{\"a\":{}{}}}", "[".repeat(5000), "]".repeat(5000)).as_bytes()), "nested deeper than 32");
    full(b' ', 0).read().unwrap();
    // As cryptsetup reads it.
    let pretty = serde_json::to_string_pretty(&json).unwrap();
    of(pretty.as_bytes()).unlock(&UnlockOptions::default()).unwrap();
}

#[test]
fn unknown_members_are_kept_and_change_nothing() {
    let mut image = Image::luks2();
    image.edit(|json| {
        json["keyslots"]["0"]["kdf"]["iterations"] = json!(1);
        json["future"] = json!({"x": [1, 2.5, null]});
    });
    image.unlock(&UnlockOptions::default()).unwrap();
    let crate::LuksHeader::V2(header) = image.read().unwrap() else { panic!("LUKS2") };
    assert_eq!(header.metadata.json, image.json());
}
