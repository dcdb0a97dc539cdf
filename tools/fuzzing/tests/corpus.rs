//! Every committed input, tried without a fuzzer.

use std::fs;
use std::path::{Path, PathBuf};

use cryptline_fuzzing::targets::TARGETS;
use cryptline_fuzzing::{SparseDisk, luks2_with_json, seal_at};
use cryptline_luks::SegmentPolicy;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// Gives each input of a target to it.
fn replay(name: &str) {
    let (_, target) = TARGETS.iter().find(|(other, _)| *other == name).expect("a target");
    let inputs = fs::read_dir(corpus().join(name)).expect("a folder of its own");
    let mut count = 0;
    for input in inputs {
        let path = input.expect("an entry").path();
        // What a panic is about.
        println!("{}", path.display());
        target(&fs::read(path).expect("bytes"));
        count += 1;
    }
    assert!(count > 0, "no input for {name}");
}

macro_rules! replayed {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        #[test]
        fn every_target_and_every_folder_is_replayed() {
            let names = [$(stringify!($name)),*];
            let targets: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(names[..], targets);
            let folders = fs::read_dir(corpus()).expect("the corpus");
            let mut folders: Vec<_> = folders.map(|it| it.expect("an entry").file_name()).collect();
            folders.sort_unstable();
            assert_eq!(folders, names);
        }
    };
}

replayed! {
    btt_image
    clevis_token
    dm_table
    fuse_message
    luks1_header
    luks2_header
    luks2_json
    nbd_client
    nbd_handshake
    nbd_reply
    nbd_request
    nbd_uri
    partition_table
    tang_answer
    tpm_reply
    vhost_message
    virtqueue
    zone_state
}

fn seed(path: &str) -> Vec<u8> {
    fs::read(corpus().join(path)).expect("bytes")
}

fn segment_of(image: Vec<u8>) -> Result<u64, cryptline_luks::Error> {
    let header = cryptline_luks::read(&mut SparseDisk::new(image, 64 << 20), 64 << 20)?;
    Ok(header.segments(SegmentPolicy::default())?[0].offset)
}

#[test]
fn wrapped_json_is_a_whole_header() {
    for name in ["pbkdf2", "argon2-token"] {
        let image = luks2_with_json(&seed(&format!("luks2_json/{name}"))).unwrap();
        assert_eq!(segment_of(image).unwrap(), 16 << 20);
    }
}

#[test]
fn sealed_copy_is_whole_and_the_same_unsealed_is_not() {
    let mut image = seed("luks2_header/pbkdf2-primary")[1..].to_vec();
    image[200] ^= 1;
    assert!(segment_of(image.clone()).is_err());
    seal_at(&mut image, 0);
    assert_eq!(segment_of(image).unwrap(), 16 << 20);
}

#[test]
fn luks1_seed_is_a_whole_header() {
    let image = seed("luks1_header/aes-xts-512")[4..].to_vec();
    assert_eq!(segment_of(image).unwrap(), 2 << 20);
}
