//! The same for tokens: whatever is left of a change has the old tokens or the new ones.

use serde_json::Value;

use super::*;
use crate::edit::{HeaderChange, TokenPlace, TokenSlots};

const TOKEN: &str = r#"{"type":"other","keyslots":["1"],"strange":[1,{"a":null}]}"#;

/// The tokens on a disk, from which both passphrases open the volume.
fn tokens(bytes: &[u8], key: &[u8], passphrases: &[usize]) -> Value {
    assert!(opening(bytes, key).starts_with(passphrases));
    let size = u64::try_from(bytes.len()).unwrap();
    match read(&mut Cursor::new(bytes), size).unwrap() {
        LuksHeader::V2(header) => header.metadata.json["tokens"].clone(),
        LuksHeader::V1(_) => panic!("LUKS2"),
    }
}

/// Makes a change and cuts it everywhere. Returns the disk that it ends in.
#[track_caller]
fn old_or_new_tokens(
    before: &[u8],
    key: &[u8],
    change: impl FnOnce(&Edit) -> Result<HeaderChange<'_>, Error>,
) -> Vec<u8> {
    let mut disk = Disk::new(before);
    let size = u64::try_from(before.len()).unwrap();
    let edit = Edit::load(&mut disk, size).unwrap();
    commit(change(&edit), &mut disk).unwrap();
    let after = disk.bytes.into_inner();
    let both = [tokens(before, key, &[0, 1]), tokens(&after, key, &[0, 1])];
    assert_ne!(both[0], both[1]);
    let mut seen = [false; 2];
    let count = each_cut(before, &disk.done, |bytes| {
        let found = tokens(bytes, key, &[0, 1]);
        let place = both.iter().position(|known| *known == found);
        seen[place.unwrap_or_else(|| panic!("{found}"))] = true;
    });
    println!("cut points survived: {count}");
    assert!(count > 50 && seen == [true; 2], "{count} {seen:?}");
    after
}

#[test]
fn tokens_set_replaced_unassigned_and_removed_at_every_cut() {
    let (bytes, key) = volume(LuksVersion::Luks2, 1);
    let place = TokenPlace::default();
    let bytes = old_or_new_tokens(&bytes, &key, |edit| {
        let set = edit.set_token(TOKEN, place, TokenSlots::One(0));
        set.map(|(change, _)| change)
    });
    let bytes = old_or_new_tokens(&bytes, &key, |edit| {
        let place = TokenPlace { id: Some(0), replace: true };
        let set = edit.set_keyring_token("a:b", place, TokenSlots::All);
        set.map(|(change, _)| change)
    });
    let bytes = old_or_new_tokens(&bytes, &key, |edit| edit.unassign_token(0, 1));
    old_or_new_tokens(&bytes, &key, |edit| edit.remove_token(0));
}

#[test]
fn clevis_token_added_at_every_cut() {
    let (bytes, key) = volume(LuksVersion::Luks2, 1);
    let jwe = serde_json::json!({"protected": "e30", "tag": "AA"});
    let after = old_or_new_tokens(&bytes, &key, |edit| {
        let token = serde_json::json!({"type": "clevis", "keyslots": [], "jwe": jwe});
        let added = edit.add_bound(&key, PASSPHRASES[2], None, token);
        added.map(|(change, ..)| change)
    });
    assert_eq!(opening(&after, &key), [0, 1, 2]);
    assert_eq!(tokens(&after, &key, &[0, 1])["0"]["jwe"], jwe);
}

/// The key slot and its token come in one step.
#[test]
fn recovery_key_added_at_every_cut() {
    let (bytes, key) = volume(LuksVersion::Luks2, 1);
    let after = old_or_new_tokens(&bytes, &key, |edit| {
        let added = edit.add_recovery(&key, PASSPHRASES[2], None);
        added.map(|(change, ..)| change)
    });
    assert_eq!(opening(&after, &key), [0, 1, 2]);
    survives(&bytes, &key, &[&[0, 1], &[0, 1, 2]], |edit, disk| {
        let added = edit.add_recovery(&key, PASSPHRASES[2], None);
        commit(added.map(|(change, ..)| change), disk)
    });
}
