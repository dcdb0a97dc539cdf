//! Headers of several segments: those that follow each other under one key can be opened, all others not.

use serde_json::{Value, json};

use crate::testing::Image;
use crate::{Error, SegmentPolicy, UnlockOptions};

const FIRST: u64 = 1 << 20;
const LEN: u64 = 4096;

/// A header whose data is `count` segments of one cipher sector, the last up to the end.
fn segmented(count: u32, change: impl FnOnce(&mut Value)) -> Image {
    let mut image = Image::luks2();
    image.edit(|json| {
        let segment = json["segments"]["0"].clone();
        let mut numbers = Vec::new();
        for number in 0..count {
            let mut segment = segment.clone();
            segment["offset"] = json!((FIRST + u64::from(number) * LEN).to_string());
            segment["size"] = json!(LEN.to_string());
            segment["iv_tweak"] = json!((number * 8).to_string());
            json["segments"][number.to_string()] = segment;
            numbers.push(number.to_string());
        }
        json["segments"][(count - 1).to_string()]["size"] = json!("dynamic");
        json["digests"]["0"]["segments"] = json!(numbers);
        change(json);
    });
    image
}

/// Makes a segment one that is not encrypted.
fn make_clear(json: &mut Value, number: usize) {
    let segment = &json["segments"][number.to_string()];
    let clear = json!({"type": "linear", "offset": segment["offset"], "size": segment["size"]});
    json["segments"][number.to_string()] = clear;
    let numbers = json["digests"]["0"]["segments"].as_array_mut().unwrap();
    numbers.retain(|known| *known != json!(number.to_string()));
}

const ALLOWS_CLEAR: SegmentPolicy = SegmentPolicy { allow_null_cipher: true, detached: false };

#[test]
fn segments_that_follow_each_other_are_told_in_their_order_and_open() {
    let image = segmented(3, |json| {
        json["segments"]["1"]["sector_size"] = json!(512);
        make_clear(json, 2);
    });
    let header = image.read().unwrap();
    let segments = header.segments(ALLOWS_CLEAR).unwrap();
    let told = segments.iter().map(|segment| {
        let cipher = segment.cipher.as_ref().map(|cipher| cipher.as_str());
        (segment.offset, segment.size, segment.sector_size, segment.iv_tweak, cipher)
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            (FIRST, Some(LEN), 4096, 0, Some("aes-xts-plain64")),
            (FIRST + LEN, Some(LEN), 512, 8, Some("aes-xts-plain64")),
            (FIRST + 2 * LEN, None, 512, 0, None),
        ]
    );
    assert_eq!(image.unlock(&UnlockOptions::default()).unwrap().key.len(), 64);
    let one = segmented(1, |_| ()).read().unwrap();
    let others = one.segments(ALLOWS_CLEAR).unwrap();
    assert_ne!(header.identity(&segments), header.identity(&segments[..2]));
    assert_ne!(header.identity(&segments), one.identity(&others));
}

#[test]
fn segment_in_the_clear_is_refused_unless_allowed() {
    let image = segmented(2, |json| make_clear(json, 1));
    let header = image.read().unwrap();
    let error = header.segments(SegmentPolicy::default()).unwrap_err();
    assert!(matches!(error, Error::ClearSegment(1)), "{error}");
    assert_eq!(header.segments(ALLOWS_CLEAR).unwrap().len(), 2);
    let none = segmented(2, |json| (0..2).for_each(|number| make_clear(json, number)));
    let error = none.read().unwrap().segments(ALLOWS_CLEAR).unwrap_err();
    assert_eq!(error.to_string(), "not supported yet: segment type 'linear'");
}

type Change = fn(&mut Value);
/// Changes that make three segments that fit together a misfit, and what is said of each.
const MISFITS: [(Change, &str); 15] = [
    (
        // The ranges are exchanged on the disk, and would be in what it shows.
        |json| {
            json["segments"]["0"]["iv_tweak"] = json!("8");
            json["segments"]["1"]["iv_tweak"] = json!("0");
        },
        "segments.0: iv_tweak is 8, but the segment begins at sector 0 of the disk",
    ),
    (
        |json| json["segments"]["1"]["iv_tweak"] = json!("0"),
        "segments.1: iv_tweak is 0, but the segment begins at sector 8 of the disk",
    ),
    (
        |json| json["segments"]["1"]["encryption"] = json!("aes-cbc-essiv:sha256"),
        "segments.1: its cipher is 'aes-cbc-essiv:sha256', that of another segment is 'aes-xts-plain64'",
    ),
    (
        |json| json["segments"]["2"]["offset"] = json!("1060864"),
        "segments.2: begins at byte 1060864, the one before ends at 1056768",
    ),
    (
        |json| {
            let last = json["segments"]["2"].take();
            json["segments"].as_object_mut().unwrap().remove("2");
            json["segments"]["7"] = last;
            json["digests"]["0"]["segments"] = json!(["0", "1", "7"]);
        },
        "segments.7: there is no number 2 before it",
    ),
    (
        |json| {
            // On the disk the first is the last.
            json["segments"]["0"]["offset"] = json!("1060864");
            json["segments"]["0"]["size"] = json!("dynamic");
            json["segments"]["2"]["size"] = json!("4096");
        },
        "segments.1: behind one whose size is dynamic",
    ),
    (|json| json["segments"]["2"]["size"] = json!((u64::MAX - 4095).to_string()), "segments.2: ends beyond 2^64 bytes"),
    (|json| json["segments"]["1"]["type"] = json!("striped"), "segment type 'striped'"),
    (|json| json["segments"]["1"]["integrity"] = json!({"type": "hmac(sha256)"}), "integrity ('hmac(sha256)')"),
    (|json| json["segments"]["1"]["encryption"] = json!("cipher_null-ecb"), "cipher_null"),
    (|json| json["digests"]["0"]["segments"] = json!(["0", "2"]), "none is for segment 1"),
    (
        |json| {
            json["digests"]["1"] = json["digests"]["0"].clone();
            json["digests"]["1"]["keyslots"] = json!([]);
        },
        "more than one is for segment 0",
    ),
    (
        |json| {
            json["digests"]["1"] = json["digests"]["0"].clone();
            json["digests"]["0"]["segments"] = json!(["0", "1"]);
            json["digests"]["1"]["segments"] = json!(["2"]);
            json["digests"]["1"]["keyslots"] = json!([]);
        },
        "segments under different volume keys",
    ),
    (
        |json| {
            make_clear(json, 1);
            json["digests"]["0"]["segments"] = json!(["0", "1", "2"]);
        },
        "one, though it is not encrypted, is for segment 1",
    ),
    (
        |json| {
            json["config"]["requirements"] = json!({"mandatory": ["online-reencrypt-v2"]});
        },
        "reencryption in progress (requirement 'online-reencrypt-v2')",
    ),
];

#[test]
fn segments_that_do_not_fit_together_are_refused_by_number() {
    for (change, says) in MISFITS {
        let image = segmented(3, change);
        let header = image.read().unwrap_or_else(|error| panic!("{says}: {error}"));
        let policy = SegmentPolicy::default();
        let error = header.segments(policy).unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    for (offset, says) in [("1048576", "overlaps"), ("1050624", "overlaps")] {
        let image = segmented(3, |json| json["segments"]["1"]["offset"] = json!(offset));
        let error = image.read().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
