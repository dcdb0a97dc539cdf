//! No bytes make the parsers panic, hang or allocate without bound. Valid headers are mutated
//! byte by byte, LUKS2 with corrected checksums so that the mutation is really looked at.

use std::io::Cursor;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::luks2::binary::HeaderCopy;
use crate::seal::{Covers, MeasureHash};
use crate::testing::{Image, paths};
use crate::{KdfLimits, LuksHeader, SegmentPolicy, UnlockOptions, look};

/// Everything a caller may do with a device of these bytes.
fn exercise(bytes: &[u8]) {
    let size = u64::try_from(bytes.len()).unwrap();
    let mut device = Cursor::new(bytes);
    let Ok(header) = look(&mut device, size) else { return };
    serde_json::to_string(&header.info()).unwrap();
    for (allow_null_cipher, detached) in [(false, false), (true, true)] {
        let policy = SegmentPolicy { allow_null_cipher, detached };
        for segment in header.segments(policy).unwrap_or_default() {
            if let Ok(data) = segment.data_size(size) {
                assert!(segment.offset + data <= size);
            }
        }
        // Only what is next to nothing: the costs are part of what is mutated.
        let limits = KdfLimits { time: Duration::ZERO };
        let options = UnlockOptions { slot: None, unbound: false, allow_null_cipher, limits };
        if let Ok(unlocked) = header.unlock(&mut device, b"pass phrase", &options) {
            header.verify_volume_key(&unlocked.key, limits).unwrap();
        }
    }
    let covers = [Covers::default(), Covers { keyslots: true, tokens: true }];
    let sealed = |covers| header.subject(covers).ok().map(|subject| subject.measure(MeasureHash::Sha256));
    let _ = (header.seal(), covers.map(sealed));
    let _ = (header.flags(), header.warnings(), header.key_len(), header.uuid());
}

fn strange_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0_u32..70_000).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        any::<u64>().prop_map(|number| number.to_string().into()),
        "[ -~]{0,40}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!(["0", "1", "0"])),
        Just(json!("dynamic")),
        Just(json!("cipher_null-ecb")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn luks1_with_any_bytes_changed(changes in vec((0_usize..592, any::<u8>()), 1..8)) {
        let mut image = Image::luks1();
        for (offset, byte) in changes {
            image.bytes[offset] = byte;
        }
        exercise(&image.bytes);
    }

    #[test]
    fn luks2_with_any_bytes_of_both_copies_changed(
        changes in vec((0_usize..6000, any::<u8>()), 1..8),
    ) {
        let mut image = Image::luks2();
        for (offset, byte) in changes {
            image.bytes[offset] = byte;
            image.bytes[0x4000 + offset] = byte;
        }
        exercise(&image.bytes);
    }

    #[test]
    fn luks2_with_any_bytes_of_the_json_changed(
        changes in vec((0_usize..1200, any::<u8>()), 1..6),
    ) {
        let mut image = Image::luks2();
        let mut json = image.json().to_string().into_bytes();
        for (offset, byte) in changes {
            let len = json.len();
            json[offset % len] = byte;
        }
        image.set_json(&json);
        exercise(&image.bytes);
    }

    #[test]
    fn luks2_with_any_values_of_the_json_replaced(
        changes in vec((any::<prop::sample::Index>(), strange_value()), 1..4),
    ) {
        let mut image = Image::luks2();
        image.edit(|json| {
            for (index, value) in changes {
                let mut all = paths(json);
                all.push(String::new());
                *json.pointer_mut(&all[index.index(all.len())]).unwrap() = value;
            }
        });
        exercise(&image.bytes);
    }

    #[test]
    fn metadata_of_any_bytes(bytes in vec(any::<u8>(), 0..500), size in any::<u64>()) {
        assert!(crate::luks2::parse_metadata(&bytes, 0x4000).is_err());
        assert!(crate::luks2::parse_metadata(&bytes, size).is_err());
    }

    #[test]
    fn image_cut_anywhere(len in 0_usize..0x60000) {
        for image in [Image::luks1(), Image::luks2()] {
            exercise(&image.bytes[..len]);
        }
    }

    #[test]
    fn noise_after_a_magic(bytes in vec(any::<u8>(), 0..5000), version in 0_u8..4) {
        let mut device = crate::MAGIC.to_vec();
        device.extend([0, version]);
        device.extend(bytes);
        exercise(&device);
    }
}

#[test]
fn mutations_of_the_json_reach_the_validator() {
    let mut image = Image::luks2();
    image.rewrite(HeaderCopy::Secondary, b"{", |_| ());
    image.rewrite(HeaderCopy::Primary, b"{}", |_| ());
    assert!(image.read().unwrap_err().to_string().contains("no \"keyslots\""));
    assert!(matches!(Image::luks2().read(), Ok(LuksHeader::V2(_))));
}
