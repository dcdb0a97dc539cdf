//! Contents of a place where a volume was looked for: other formats, by the names that people know them by.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};

use crate::create::look;
use crate::nameless;
use crate::partition::PartitionTable;
use crate::size::human;

/// Data that a target holds in place of a LUKS volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contents {
    /// Partitions, at least one.
    Partitioned(Box<PartitionTable>),
    /// An image of a disk in another format.
    Image {
        /// Its name, with its article.
        what: &'static str,
        /// QEMU's name of the format.
        format: &'static str,
    },
    /// A qcow2 image that QEMU encrypted, in a way that only QEMU reads.
    EncryptedQcow2,
    /// An image of a disk as examiners keep it.
    Evidence {
        /// Its name, with its article.
        what: &'static str,
        /// The program that shows it as a plain image.
        program: &'static str,
    },
    /// A compressed file.
    Compressed {
        /// Its name, with its article.
        what: &'static str,
        /// The program that decompresses it.
        program: &'static str,
    },
    /// A BitLocker volume.
    BitLocker,
    /// An LVM physical volume, whose logical volumes may be encrypted.
    Lvm,
    /// A file system, a part of an array or the like, with its article.
    Other(&'static str),
    /// Not a byte.
    Empty,
    /// Zeros, as far as it was read.
    Zeros {
        /// Bytes that were read.
        read: u64,
        /// Bytes there are.
        size: u64,
    },
    /// Bytes that look as if they were drawn by chance, as a disk that is encrypted without a header has them; and zeros in
    /// places.
    Noise,
}

/// A format by its name, what programs call it, and where it has which bytes.
type KnownFormat = (&'static str, &'static str, &'static [(u64, &'static [u8])]);

/// Formats of evidence. An AFF4 container is a ZIP file, whose first member names the container.
const EVIDENCE: &[KnownFormat] = &[
    ("an E01 image (EnCase)", "ewfmount", &[(0, b"EVF\x09\r\n\xff\0")]),
    ("an Ex01 image (EnCase 7)", "ewfmount", &[(0, b"EVF2\r\n\x81\0")]),
    ("an AFF image", "affuse", &[(0, b"AFF10\r\n\0")]),
    ("an AFF4 container", "aff4imager", &[(0, b"PK\x03\x04"), (30, b"container.description")]),
];

/// The method of encryption in the header of a qcow2 image from version 2 on: AES, LUKS.
const ENCRYPTED: &[KnownFormat] = &[
    ("AES", "aes", &[(0, b"QFI\xfb"), (32, b"\0\0\0\x01")]),
    ("LUKS", "luks", &[(0, b"QFI\xfb"), (32, b"\0\0\0\x02")]),
];

const IMAGES: &[KnownFormat] = &[
    ("a qcow2 image", "qcow2", &[(0, b"QFI\xfb")]),
    ("a VMDK image", "vmdk", &[(0, b"KDMV")]),
    ("a VMDK image", "vmdk", &[(0, b"COWD")]),
    ("a VMDK image", "vmdk", &[(0, b"# Disk DescriptorFile")]),
    ("a VHDX image", "vhdx", &[(0, b"vhdxfile")]),
    ("a VHD image", "vpc", &[(0, b"conectix")]),
    ("a VDI image", "vdi", &[(0x40, b"\x7f\x10\xda\xbe")]),
    ("a QED image", "qed", &[(0, b"QED\0")]),
    ("a Parallels image", "parallels", &[(0, b"WithoutFreeSpace")]),
    ("a Parallels image", "parallels", &[(0, b"WithouFreSpacExt")]),
];
/// Where a VHD image of fixed size has its only mark, from the end.
const FOOTER: u64 = 512;

const COMPRESSED: &[KnownFormat] = &[
    ("a gzip file", "gzip -d", &[(0, b"\x1f\x8b\x08")]),
    ("a zstd file", "zstd -d", &[(0, b"\x28\xb5\x2f\xfd")]),
    ("an xz file", "xz -d", &[(0, b"\xfd7zXZ\0")]),
    ("a bzip2 file", "bzip2 -d", &[(0, b"BZh"), (4, b"1AY&SY")]),
    ("an LZ4 file", "lz4 -d", &[(0, b"\x04\x22\x4d\x18")]),
    ("a ZIP file", "unzip", &[(0, b"PK\x03\x04")]),
];

/// Returns what `device`, which has `size` bytes, holds, if it is known. LUKS is called what it is. `sector` is the
/// size of the device's sectors, where it is known.
pub(crate) fn find(device: &mut (impl Read + Seek), size: u64, sector: Option<u32>) -> io::Result<Option<Contents>> {
    if let Some((what, program)) = first_of(EVIDENCE, device, size)? {
        return Ok(Some(Contents::Evidence { what, program }));
    }
    if first_of(ENCRYPTED, device, size)?.is_some() {
        return Ok(Some(Contents::EncryptedQcow2));
    }
    if let Some((what, format)) = first_of(IMAGES, device, size)? {
        return Ok(Some(Contents::Image { what, format }));
    }
    if let Some(footer) = size.checked_sub(FOOTER)
        && has(device, size, footer, b"conectix")?
    {
        let (what, format) = ("a VHD image", "vpc");
        return Ok(Some(Contents::Image { what, format }));
    }
    // A damaged table has a name below.
    if let Ok(Some(table)) = PartitionTable::read(device, size, sector)
        && !table.partitions.is_empty()
    {
        return Ok(Some(Contents::Partitioned(Box::new(table))));
    }
    if let Some((what, program)) = first_of(COMPRESSED, device, size)? {
        return Ok(Some(Contents::Compressed { what, program }));
    }
    named(device)
}

/// Returns as much as can be told of it to people: as [`find`], and what is in partitions, and zeros and noise. Nothing may be
/// decided by that.
pub(crate) fn told(device: &mut (impl Read + Seek), size: u64, sector: Option<u32>) -> io::Result<Option<Contents>> {
    match find(device, size, sector)? {
        Some(Contents::Partitioned(mut table)) => {
            table.look_inside(device);
            Ok(Some(Contents::Partitioned(table)))
        }
        None => nameless::find(device, size),
        found => Ok(found),
    }
}

/// Returns what is in a part of a disk: as [`find`], without formats of whole disks, and zeros and noise besides.
pub(crate) fn inside(part: &mut (impl Read + Seek), size: u64) -> io::Result<Option<Contents>> {
    match named(part)? {
        None => nameless::find(part, size),
        found => Ok(found),
    }
}

fn named(device: &mut (impl Read + Seek)) -> io::Result<Option<Contents>> {
    Ok(match look::name(device)? {
        // Two bytes, which anything may have there.
        None | Some("a boot sector") => None,
        Some("a BitLocker volume") => Some(Contents::BitLocker),
        Some("an LVM physical volume") => Some(Contents::Lvm),
        Some(what) => Some(Contents::Other(what)),
    })
}

fn first_of(
    known: &[KnownFormat],
    device: &mut (impl Read + Seek),
    size: u64,
) -> io::Result<Option<(&'static str, &'static str)>> {
    'next: for (what, word, parts) in known {
        for (at, bytes) in *parts {
            if !has(device, size, *at, bytes)? {
                continue 'next;
            }
        }
        return Ok(Some((what, word)));
    }
    Ok(None)
}

fn has(device: &mut (impl Read + Seek), size: u64, at: u64, bytes: &[u8]) -> io::Result<bool> {
    if at.checked_add(bytes.len() as u64).is_none_or(|end| end > size) {
        return Ok(false);
    }
    let mut found = [0; 32];
    let found = &mut found[..bytes.len()];
    device.seek(SeekFrom::Start(at))?;
    device.read_exact(found)?;
    Ok(found == bytes)
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partitioned(table) => {
                let (kind, there) = (table.kind, table.there());
                write!(f, "a disk with partitions ({kind}); {there}")
            }
            Self::Image { what, .. }
            | Self::Evidence { what, .. }
            | Self::Compressed { what, .. }
            | Self::Other(what) => f.write_str(what),
            Self::EncryptedQcow2 => f.write_str("a qcow2 image that QEMU encrypted"),
            Self::Lvm => f.write_str("an LVM physical volume"),
            Self::BitLocker => f.write_str("a BitLocker volume"),
            Self::Empty => f.write_str("empty: it has 0 bytes"),
            Self::Zeros { read, size } if read == size => f.write_str("nothing but zeros"),
            Self::Zeros { read, .. } => {
                write!(f, "zeros wherever it was read ({} in all)", human(*read))
            }
            Self::Noise => f.write_str(
                "random data, as in plain dm-crypt and VeraCrypt volumes, wiped disks and LUKS volumes without their header",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn found(at: usize, magic: &[u8]) -> Option<Contents> {
        let mut bytes = vec![0; 1 << 20];
        bytes[at..at + magic.len()].copy_from_slice(magic);
        let size = bytes.len() as u64;
        find(&mut Cursor::new(bytes), size, None).unwrap()
    }

    #[test]
    fn formats_are_known_by_their_marks() {
        for (at, magic, name) in [
            (0, &b"QFI\xfb\0\0\0\x03"[..], "a qcow2 image"),
            (0, &[&b"QFI\xfb\0\0\0\x03"[..], &[0; 24], &[0, 0, 0, 2]].concat(), "a qcow2 image that QEMU encrypted"),
            (0, b"EVF\x09\r\n\xff\0\x01", "an E01 image (EnCase)"),
            (0, b"EVF2\r\n\x81\0\x02", "an Ex01 image (EnCase 7)"),
            (0, &[&b"PK\x03\x04"[..], &[0; 26], b"container.description"].concat(), "an AFF4 container"),
            (0, &[&b"PK\x03\x04"[..], &[0; 26], b"letter.txt"].concat(), "a ZIP file"),
            (512, &[&b"LABELONE"[..], &[0; 16], b"LVM2 001"].concat(), "an LVM physical volume"),
            (0, b"# Disk DescriptorFile\n", "a VMDK image"),
            (0x40, b"\x7f\x10\xda\xbe", "a VDI image"),
            ((1 << 20) - 512, b"conectix", "a VHD image"),
            (0, b"\x1f\x8b\x08\0", "a gzip file"),
            (0, b"BZh91AY&SY", "a bzip2 file"),
            (3, b"-FVE-FS-", "a BitLocker volume"),
            (0, b"XFSB", "an XFS file system"),
        ] {
            let found = found(at, magic).map(|contents| contents.to_string());
            assert_eq!(found.as_deref(), Some(name));
        }
    }

    #[test]
    fn what_anything_may_have_has_no_name() {
        assert_eq!(found(0, &[]), None);
        assert_eq!(found(0, b"BZh9 is no bzip2"), None);
        assert_eq!(found(0x1be, &[&[0x17; 64][..], b"\x55\xaa"].concat()), None);
        for len in [0, 1, 511, 512] {
            assert_eq!(find(&mut Cursor::new(vec![0; len]), len as u64, None).unwrap(), None);
        }
    }
}
