//! Every committed input, tried without a fuzzer.

use std::fs;
use std::path::{Path, PathBuf};

use cryptline_fuzzing::targets::TARGETS;

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
    nbd_session
    nbd_uri
    partition_table
    tang_answer
    tpm_reply
    vhost_message
    virtqueue
    zone_state
}
