//! Formatting that stops anywhere (power loss, full disk) leaves the old volume, no volume, or
//! the whole new one; never a header that opens to something else.

use std::io::{self, Cursor, Write};

use crate::format::{FormatOptions, LuksVersion, format};
use crate::testing::{Device, Image, PASSPHRASE, cheap_options};
use crate::{Error, ErrorKind, UnlockOptions, read};

const NEW_PASSPHRASE: &[u8] = b"new";

fn opens(bytes: &[u8], passphrase: &[u8]) -> bool {
    let size = u64::try_from(bytes.len()).unwrap();
    let mut device = Cursor::new(bytes);
    let Ok(header) = read(&mut device, size) else {
        return false;
    };
    let unlocked = header.unlock(&mut device, passphrase, &UnlockOptions::default());
    unlocked.is_ok_and(|unlocked| header.verify_volume_key(&unlocked.key, crate::KdfLimits::default()).is_ok())
}

/// Formats `old` anew, stopping after each number of writes, and tells the states it went through.
fn states(old: &Image, options: &FormatOptions) -> Vec<&'static str> {
    let size = u64::try_from(old.bytes.len()).unwrap();
    let mut states = Vec::new();
    for writes in 0.. {
        let mut left = writes;
        let write = |disk: &mut Cursor<Vec<u8>>, data: &[u8]| {
            left = usize::checked_sub(left, 1).ok_or(io::ErrorKind::StorageFull)?;
            // So that larger writes are torn.
            disk.write(&data[..data.len().min(8192)])
        };
        let mut failing = Device { disk: Cursor::new(old.bytes.clone()), readable: u64::MAX, write };
        let done = format(&mut failing, size, NEW_PASSPHRASE, options);
        let bytes = failing.disk.into_inner();
        let state = match (opens(&bytes, PASSPHRASE), opens(&bytes, NEW_PASSPHRASE)) {
            (true, false) => "old",
            (false, false) => "none",
            (false, true) => "new",
            (true, true) => "both",
        };
        if states.last() != Some(&state) {
            states.push(state);
        }
        match done {
            Ok(_) => return states,
            Err(error) => {
                assert!(matches!(error, Error::Io { action: "write", .. }), "{error}");
                assert_eq!(error.kind(), ErrorKind::Device);
            }
        }
    }
    unreachable!("the loop ends when formatting succeeds")
}

#[test]
fn new_volume_over_an_old_one_goes_from_old_to_none_to_new() {
    let luks2 = FormatOptions { data_offset: Some(512 << 10), ..cheap_options(LuksVersion::Luks2) };
    let luks1 = FormatOptions { key_len: 32, ..cheap_options(LuksVersion::Luks1) };
    let mut longer = Image::luks2();
    longer.bytes.resize((2 << 20) + 4096, 0);
    for (old, options) in [(Image::luks2(), &luks2), (longer, &luks1), (Image::luks1(), &luks2)] {
        assert_eq!(states(&old, options), ["old", "none", "new"], "{options:?}");
    }
}
