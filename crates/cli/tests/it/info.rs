//! `info`: what it shows, and that its JSON is what docs/info-json.md promises.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::*;
use serde_json::{Value, json};

fn json_of(image: &Path) -> Value {
    let run = cryptline(["info".as_ref(), "--json".as_ref(), image.as_os_str()]);
    serde_json::from_str(&run.success().stdout_text()).expect("JSON")
}

#[test]
fn every_member_of_the_json_is_documented_and_the_other_way_round() {
    let folder = Folder::new();
    let image = folder.luks2();
    edit_metadata(&image, |json| {
        let (kind, description) = ("luks2-keyring", "a:b");
        let token = json!({"type": kind, "keyslots": ["0"], "key_description": description});
        json["tokens"]["0"] = token;
    });
    let mut members = BTreeSet::new();
    collect(&json_of(&image), &mut members);
    collect(&json_of(&folder.luks1()), &mut members);
    let page = include_str!("../../../../docs/info-json.md");
    let (header, disk) = page.split_once("\n## A disk with partitions").expect("two tables");
    assert_eq!(members, documented(header));
    // An MBR with one partition, of 1 MiB from sector 2048 on.
    let image = folder.path("disk.img");
    let mut bytes = vec![0; 20 << 20];
    bytes[446..462].copy_from_slice(b"\0\0\0\0\x83\0\0\0\0\x08\0\0\0\x08\0\0");
    bytes[510..512].copy_from_slice(b"\x55\xaa");
    std::fs::write(&image, bytes).unwrap();
    let mut members = BTreeSet::new();
    collect(&json_of(&image), &mut members);
    assert_eq!(members, documented(disk));
}

fn documented(page: &str) -> BTreeSet<String> {
    page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name.to_owned()).collect()
}

/// The names of all members, with the path that the documentation gives them.
fn collect(value: &Value, members: &mut BTreeSet<String>) {
    fn walk(value: &Value, path: &str, members: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                for (name, value) in object {
                    let path = format!("{path}{name}");
                    walk(value, &format!("{path}."), members);
                    members.insert(path);
                }
            }
            Value::Array(items) => {
                let path = path.trim_end_matches('.');
                items.iter().for_each(|item| walk(item, &format!("{path}[]."), members));
            }
            _ => {}
        }
    }
    walk(value, "", members);
}
