//! One LUKS1 image and one plain image, with the same clear text.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cryptline::size;
use cryptline_cipher::{SectorCipher, SectorOptions};
use cryptline_luks::format::{FormatOptions, KdfCost, Version, format};
use cryptline_luks::{Header, SegmentPolicy};
use sha2::{Digest, Sha256};

use crate::Error;
use crate::contents::Contents;

/// The passphrase's file.
pub const KEY_FILE: &str = "passphrase";
/// It protects noise.
const PASSPHRASE: &str = "no secret at all";
/// The fewest that LUKS1 has, so that servers start quickly.
const ITERATIONS: u32 = 1000;
/// More than the header of any LUKS1 image made here.
const HEADER_ROOM: u64 = 4 << 20;
/// Bytes encrypted at a time.
const PIECE: usize = 1 << 20;
/// Which contents.
const SEED: u64 = 0x6372_7970_746c_696e;

/// The images.
#[derive(Debug)]
pub struct Images {
    /// Encrypted.
    pub luks: PathBuf,
    /// Its clear text.
    pub plain: PathBuf,
    /// The passphrase.
    pub key: PathBuf,
    /// Bytes of clear text.
    pub size: u64,
    /// What it is.
    pub contents: Contents,
    /// Its SHA-256.
    pub sha256: [u8; 32],
    /// What the folder lies on, for people.
    pub medium: String,
}

impl Images {
    /// Makes both in `folder`.
    pub fn make(folder: &Path, size: u64) -> Result<Self, Error> {
        let (file_system, free) = file_system(folder)?;
        let needed = size.saturating_add(HEADER_ROOM).saturating_mul(2);
        if needed > free {
            return Err(Error::parameters(format!(
                "the images need {} and {} has {} free; give a smaller --size or another --dir",
                size::human(needed),
                folder.display(),
                size::human(free)
            )));
        }
        let mut images = Self {
            luks: folder.join("luks1.img"),
            plain: folder.join("plain.img"),
            key: folder.join(KEY_FILE),
            size,
            contents: Contents::new(SEED),
            sha256: [0; 32],
            medium: format!("{file_system}, {} of clear disk", size::human(size)),
        };
        images.sha256 = images
            .fill()
            .map_err(|why| Error::device(format!("{}: {why}", folder.display())))?;
        Ok(images)
    }

    fn fill(&self) -> Result<[u8; 32], String> {
        let io = |error: std::io::Error| error.to_string();
        let mut new = File::options();
        new.read(true).write(true).create_new(true).mode(0o600);
        let mut key_file = new.open(&self.key).map_err(io)?;
        key_file.write_all(PASSPHRASE.as_bytes()).map_err(io)?;
        let mut plain = new.open(&self.plain).map_err(io)?;
        let mut luks = new.open(&self.luks).map_err(io)?;
        let (cipher, offset) = self.header(&mut luks)?;
        std::io::Seek::seek(&mut luks, std::io::SeekFrom::Start(offset)).map_err(io)?;
        let mut hash = Sha256::new();
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        while at < self.size {
            // A multiple of 1 MiB by the check of the arguments.
            self.contents.fill(at, &mut piece);
            hash.update(&piece);
            plain.write_all(&piece).map_err(io)?;
            cipher.encrypt_in_place(at / 512, &mut piece);
            luks.write_all(&piece).map_err(io)?;
            at += piece.len() as u64;
        }
        // On a disk, writing back later would disturb what is measured.
        plain.sync_all().map_err(io)?;
        luks.sync_all().map_err(io)?;
        Ok(hash.finalize().into())
    }

    /// Makes the header and gives the cipher of the data and where the data begins.
    fn header(&self, luks: &mut File) -> Result<(SectorCipher, u64), String> {
        let of_luks = |error: cryptline_luks::Error| error.to_string();
        let room = self.size + HEADER_ROOM;
        luks.set_len(room).map_err(|error| error.to_string())?;
        let options = FormatOptions {
            version: Version::Luks1,
            cost: KdfCost {
                iterations: Some(ITERATIONS),
                ..KdfCost::default()
            },
            ..FormatOptions::default()
        };
        let key = format(luks, room, PASSPHRASE.as_bytes(), &options).map_err(of_luks)?;
        let header: Header = cryptline_luks::read(luks, room).map_err(of_luks)?;
        let segment = header.segment(SegmentPolicy::default()).map_err(of_luks)?;
        let sectors = SectorOptions {
            sector_size: segment.sector_size,
            iv_offset: segment.iv_tweak,
            iv_large_sectors: false,
        };
        let cipher =
            SectorCipher::new(&segment.cipher, &key, sectors).map_err(|error| error.to_string())?;
        // The clear disk is as large as the plain image, to the byte.
        luks.set_len(segment.offset + self.size)
            .map_err(|error| error.to_string())?;
        Ok((cipher, segment.offset))
    }
}

/// What `folder` lies on, and how many bytes are free there.
fn file_system(folder: &Path) -> Result<(String, u64), Error> {
    /// Magic of tmpfs, see statfs(2).
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    let failed = |error: rustix::io::Errno| {
        Error::parameters(format!(
            "--dir {}: {error}; give another folder",
            folder.display()
        ))
    };
    let stat = rustix::fs::statfs(folder).map_err(failed)?;
    let space = rustix::fs::statvfs(folder).map_err(failed)?;
    let parent = folder.parent().unwrap_or(folder);
    let parent = fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned());
    let kind = if stat.f_type == TMPFS {
        "memory (tmpfs)".to_owned()
    } else {
        format!(
            "a file system of type {:#x}, through the page cache",
            stat.f_type
        )
    };
    let name = format!("{kind} at {}", parent.display());
    Ok((name, space.f_bavail.saturating_mul(space.f_frsize)))
}
