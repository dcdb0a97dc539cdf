//! Volumes that encrypt nothing: an empty passphrase opens them, where that is allowed, and nothing else.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::common::*;
use cryptline_luks::format::{FormatOptions, KdfCost, KdfKind};
use cryptline_testkit::peer::Run;
use serde_json::json;

const ALLOWED: &str = "--allow-null-cipher";

/// A LUKS2 volume with an empty passphrase, as `create` makes none.
fn with_empty_passphrase(folder: &Folder) -> PathBuf {
    let path = folder.path("empty.img");
    let options = FormatOptions {
        kdf: Some(KdfKind::Pbkdf2),
        cost: KdfCost { iterations: Some(1000), ..KdfCost::default() },
        ..FormatOptions::default()
    };
    let mut file = File::options();
    let file = file.read(true).write(true).create_new(true);
    let mut file = file.open(&path).unwrap();
    file.set_len(SIZE).unwrap();
    cryptline_luks::format::format(&mut file, SIZE, b"", &options).unwrap();
    path
}

/// `VERB IMAGE OPTIONS...` with `input` on standard input.
#[track_caller]
fn with_input(verb: &str, image: &Path, options: &[&str], input: &[u8]) -> Run {
    let image = image.to_str().unwrap();
    let verb = match verb {
        "serve" => ["serve", image, "--run=true"],
        _ => ["open", image, "--check"],
    };
    cryptline_with_input(verb.iter().chain(options), input)
}

const EVERY_SOURCE: [(&str, &[u8]); 3] =
    [("--key-file=-", b""), ("--passphrase-fd=0", b""), ("--passphrase-fd=0", b"\n")];

#[test]
fn an_empty_passphrase_opens_a_volume_of_the_null_cipher_where_that_is_allowed() {
    let folder = Folder::new();
    let image = with_empty_passphrase(&folder);
    edit_metadata(&image, |json| {
        json["segments"]["0"]["encryption"] = json!("cipher_null-ecb");
    });
    for verb in ["open", "serve"] {
        for (source, input) in EVERY_SOURCE {
            with_input(verb, &image, &[source, ALLOWED], input).success();
        }
        let wrong = with_input(verb, &image, &["--key-file=-", ALLOWED], b"wrong");
        refused(wrong, 2, "No key available with this passphrase.");
    }
    for (source, input) in EVERY_SOURCE {
        let run = with_input("open", &image, &[source], input);
        refused(run, 1, "is empty; put the passphrase in it");
        // That nothing is encrypted comes first.
        refused(with_input("serve", &image, &[source], input), 4, ALLOWED);
    }
}

#[test]
fn an_empty_passphrase_is_refused_where_something_is_encrypted() {
    let folder = Folder::new();
    for image in [folder.luks2(), folder.luks1()] {
        for verb in ["open", "serve"] {
            for (source, input) in EVERY_SOURCE {
                let run = with_input(verb, &image, &[source], input);
                refused(run, 1, "is empty; put the passphrase in it");
                let allowed = with_input(verb, &image, &[source, ALLOWED], input);
                refused(allowed, 2, "No key available with this passphrase.");
            }
        }
    }
    // It would open this one: nobody can have meant it.
    let image = with_empty_passphrase(&folder);
    let run = with_input("open", &image, &["--key-file=-"], b"");
    refused(run, 1, "is empty; put the passphrase in it");
}

#[test]
fn no_volume_is_made_with_an_empty_passphrase() {
    let folder = Folder::new();
    let path = folder.path("new.img");
    let mut arguments = vec!["create".into(), path.clone()];
    arguments.extend(["--size=20M".into(), "--key-file=-".into()]);
    refused(cryptline_with_input(arguments, b""), 1, "is empty; put the passphrase in it");
    assert!(!path.exists());
}
