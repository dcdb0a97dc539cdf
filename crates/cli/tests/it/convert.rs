//! `header convert`: cryptsetup opens what was converted here, and what it converted opens here.

use std::fs::{self, File};
use std::path::Path;

use crate::common::*;
use cryptline_testkit::peer::{self, Peer};

const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];

/// Whether both programs open it with both keys, and see this version.
fn agrees(cryptsetup: &Peer, place: &[&str], keys: &[String], version: &str) {
    for key in keys {
        let opened = [&["open", "--test-passphrase", key], place].concat();
        cryptsetup.run(opened).success();
        let opened = [&["open", "--check", key], place].concat();
        cryptline(opened).success();
    }
    let kind = format!("--type={version}");
    cryptsetup.run([&["isLuks", &*kind], place].concat()).success();
    let info = cryptline([&["info", "--json"], place].concat()).success();
    let found = format!("\"kind\": \"{}\"", version.to_uppercase());
    assert!(info.stdout_text().contains(&found), "{info}");
}

fn line(path: &Path) -> &str {
    path.to_str().expect("no odd names here")
}

#[test]
fn headers_are_converted_both_ways_as_cryptsetup_does_and_the_data_stays() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let folder = Folder::new();
    let other = folder.path("other");
    fs::write(&other, "another").unwrap();
    let keys = [folder.key(), other].map(|path| format!("--key-file={}", path.display()));
    let [first, second] = [&*keys[0], &*keys[1]];
    // Which program converts to what. Where a header was converted here, cryptsetup makes it LUKS1 if there is room for
    // eight slots in its own places; it takes only LUKS1 headers whose first key slot is where it puts it.
    let [ours, theirs] = [false, true];
    let both: [(bool, &[(bool, &str)]); 3] = [
        (false, &[(ours, "luks2"), (theirs, "luks1"), (ours, "luks2")]),
        (false, &[(theirs, "luks2"), (ours, "luks1"), (ours, "luks2")]),
        (true, &[(ours, "luks2"), (ours, "luks1"), (ours, "luks2")]),
    ];
    for (detached, steps) in both {
        let [disk, header] = ["disk", "header"].map(|name| folder.path(name));
        File::create(&disk).unwrap().set_len(SIZE).unwrap();
        let separate = format!("--header={}", header.display());
        let mut place = vec![line(&disk)];
        place.extend(detached.then_some(&*separate));
        let format = ["luksFormat", "-q", "--type=luks1", "--key-size=256", first];
        cryptsetup.run([&format[..], &CHEAP, &place].concat()).success();
        let other = format!("--new-keyfile={}", &second["--key-file=".len()..]);
        let add = ["luksAddKey", "-q", first, &other];
        cryptsetup.run([&add[..], &CHEAP, &place].concat()).success();
        let data = fs::read(&disk).unwrap();
        let convert = |by_cryptsetup: bool, to: &str| {
            if by_cryptsetup {
                let to = format!("--type={to}");
                let holder = if detached { line(&header) } else { line(&disk) };
                cryptsetup.run(["convert", "-q", &to, holder]).success();
            } else {
                let convert = [&["header", "convert", "--to", to], &place[..]].concat();
                cryptline(convert).success();
            }
            agrees(&cryptsetup, &place, &keys, to);
        };
        for &(by_cryptsetup, to) in steps {
            convert(by_cryptsetup, to);
        }
        let start = if detached { 0 } else { 4 << 20 };
        assert!(fs::read(&disk).unwrap()[start..] == data[start..]);
        let again = [&["convert", "--type", "luks2"], &place[..]].concat();
        refused(cryptline(again), 1, "it is LUKS2 already");
        for file in [disk, header] {
            let _ = fs::remove_file(file);
        }
    }
}

#[test]
fn volume_that_is_served_is_not_converted() {
    let folder = Folder::new();
    let image = folder.luks1();
    let volume = open(&[line(&image), "--key-file", line(&folder.key())]);
    let before = fs::read(&image).unwrap();
    let convert = ["header", "convert", line(&image), "--to", "luks2"];
    cryptline(convert).exited_with(5);
    drop(volume);
    assert!(fs::read(&image).unwrap() == before);
    cryptline(convert).success();
}

/// A key slot for another key: listed as one, opened when it is named, and no way into the volume.
#[test]
fn key_slot_of_another_key_does_not_open_the_volume() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let folder = Folder::new();
    let (image, other) = (folder.luks2(), folder.path("other"));
    fs::write(&other, "another").unwrap();
    let key = format!("--key-file={}", other.display());
    let new = format!("--new-key-file={}", other.display());
    let image = line(&image);
    let add = ["key", "add", image, "--unbound", &new, "--key-size=256"];
    cryptline([&add[..], &CHEAP].concat()).success();
    let list = cryptline(["key", "list", image]).success().stdout_text();
    assert!(list.contains("1  luks2") && list.contains("of another key"), "{list}");
    cryptline(["open", "--check", image, &key]).exited_with(2);
    cryptline(["open", "--check", image, &key, "--key-slot=1"]).success();
    let out = folder.path("out");
    cryptline(["copy", image, line(&out), &key, "--key-slot=1"]).exited_with(1);
    assert!(!out.exists());
    let checked = ["open", "--test-passphrase", "--key-slot=1", &key, image];
    cryptsetup.run(checked).success();
    // What it keeps is what cryptsetup finds there.
    let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path(name));
    let dump = ["luksDump", image, "--unbound", "-S1", &key, "--volume-key-file"];
    cryptline([&dump[..], &[line(&ours)]].concat()).success();
    cryptsetup.run([&dump[..], &[line(&theirs)]].concat()).success();
    let kept = fs::read(&ours).unwrap();
    assert!(kept.len() == 32 && kept == fs::read(&theirs).unwrap());
    let refused_key = ["key", "add", image, &key, "--key-slot=3", "--new-key-slot=4", &new];
    cryptline(refused_key).exited_with(1);
    cryptline(["key", "kill", image, "1", "-q"]).success();
}
