//! Formatting that stops anywhere (power loss, full disk) leaves the old volume, no volume, or
//! the whole new one; never a header that opens to something else.

use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};

use crate::format::{FormatOptions, Version, format};
use crate::testing::{Image, PASSPHRASE, cheap_options};
use crate::{Error, ErrorKind, UnlockOptions, read};

const NEW_PASSPHRASE: &[u8] = b"new";

/// A device that takes a number of writes and then no more.
struct Failing {
    device: Cursor<Vec<u8>>,
    writes_left: usize,
}

impl Write for Failing {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let left = self.writes_left.checked_sub(1);
        self.writes_left = left.ok_or(io::ErrorKind::StorageFull)?;
        // At most a sector at a time, so that larger writes are torn.
        self.device.write(&data[..data.len().min(8192)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Failing {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.device.read(out)
    }
}

impl Seek for Failing {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.device.seek(to)
    }
}

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
        let device = Cursor::new(old.bytes.clone());
        let mut failing = Failing { device, writes_left: writes };
        let done = format(&mut failing, size, NEW_PASSPHRASE, options);
        let bytes = failing.device.into_inner();
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
fn luks2_over_luks2_goes_from_old_to_none_to_new() {
    let mut options = cheap_options(Version::Luks2);
    options.data_offset = Some(512 << 10);
    assert_eq!(states(&Image::luks2(), &options), ["old", "none", "new"]);
}

#[test]
fn luks1_over_luks2_goes_from_old_to_none_to_new() {
    let mut options = cheap_options(Version::Luks1);
    options.key_len = 32;
    let mut old = Image::luks2();
    old.bytes.resize((2 << 20) + 4096, 0);
    assert_eq!(states(&old, &options), ["old", "none", "new"]);
}

#[test]
fn luks2_over_luks1_goes_from_old_to_none_to_new() {
    let mut options = cheap_options(Version::Luks2);
    options.data_offset = Some(512 << 10);
    assert_eq!(states(&Image::luks1(), &options), ["old", "none", "new"]);
}
