//! Other contents of a device: file systems, partition tables, parts of arrays.
//!
//! A disk that was a LUKS2 volume once and is something else now often keeps the secondary copy of
//! its header, whole and valid. What is known here tells such a disk from a damaged volume.
//!
//! Sources: the magic numbers of libblkid's probes and of the formats' own specifications. A magic of
//! few bytes is looked at together with fields that hold only certain values.

use std::io::{Read, Seek};

use crate::device::{read_at, to_u64};
use crate::error::Error;

/// Marks by which a kind of contents is known: all `parts` at one of `starts`.
struct Signature {
    name: &'static str,
    /// Bytes from the start of the device.
    starts: &'static [u64],
    /// Bytes from there, and what must be there.
    parts: &'static [(usize, &'static [u8])],
}

const fn at(start: &'static [u64], name: &'static str, parts: &'static [(usize, &'static [u8])]) -> Signature {
    Signature { name, starts: start, parts }
}

/// The last 10 bytes of the first page, for each size of a page.
const PAGE_ENDS: &[u64] = &[0xff6, 0x1ff6, 0x3ff6, 0x7ff6, 0xfff6];
const MBR_MARK: &[u8] = &[0x55, 0xaa];

const RAID: &str = "a part of a Linux RAID array";
const LVM: &str = "an LVM physical volume";
const SWAP: &str = "swap space";
const HIBERNATION: &str = "a hibernation image";
const BITLOCKER: &str = "a BitLocker volume";
const BCACHE: &str = "a bcache device";
const STRATIS: &str = "a Stratis device";
const FAT: &str = "a FAT file system";
const REISER: &str = "a ReiserFS file system";
const OCFS2: &str = "an OCFS2 file system";
const UDF: &str = "a UDF file system";
const HFS_PLUS: &str = "an HFS+ file system";

/// Everything with a fixed place. What lies inside another (a boot sector has the mark of a partition
/// table) comes before it.
const SIGNATURES: &[Signature] = &[
    // Arrays, volume managers, caches, other encryption.
    at(&[0, 4096], RAID, &[(0, b"\xfc\x4e\x2b\xa9\x01\0\0\0")]),
    at(&[0, 512, 1024, 1536], LVM, &[(0, b"LABELONE"), (24, b"LVM2 001")]),
    at(&[0], "an LVM snapshot store", &[(0, b"SnAp\x01\0\0\0")]),
    at(&[0], "a dm-verity hash device", &[(0, b"verity\0\0")]),
    at(&[0], "a dm-integrity device", &[(0, b"integrt\0")]),
    at(&[0], "a VDO device", &[(0, b"dmvdo001")]),
    at(&[512, 4608], STRATIS, &[(4, b"!Stra0tis\x86\xff\x02^\x41rh")]),
    at(&[4096], BCACHE, &[(24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81")]),
    at(&[4096], "a bcachefs file system", &[(24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef")]),
    at(&[0], BITLOCKER, &[(3, b"-FVE-FS-")]),
    // BitLocker To Go looks like FAT32 but for the GUID at 424.
    at(
        &[0],
        BITLOCKER,
        &[(3, b"MSWIN4.1"), (424, b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01")],
    ),
    at(&[0], "a Ceph BlueStore device", &[(0, b"bluestore block device")]),
    at(&[0], "an Oracle ASM disk", &[(32, b"ORCLDISK")]),
    at(&[0], "a UBI device", &[(0, b"UBI#\x01")]),
    // Swap.
    at(PAGE_ENDS, SWAP, &[(0, b"SWAPSPACE2")]),
    at(PAGE_ENDS, SWAP, &[(0, b"SWAP-SPACE")]),
    at(PAGE_ENDS, HIBERNATION, &[(0, b"S1SUSPEND")]),
    at(PAGE_ENDS, HIBERNATION, &[(0, b"S2SUSPEND")]),
    at(PAGE_ENDS, HIBERNATION, &[(0, b"ULSUSPEND")]),
    at(PAGE_ENDS, HIBERNATION, &[(0, b"LINHIB0001")]),
    // File systems. The magic of ext has two bytes: the block size and the revision are small.
    at(&[1024], "an ext2, ext3 or ext4 file system", &[(56, b"\x53\xef"), (25, &[0; 3]), (77, &[0; 3])]),
    at(&[0], "an XFS file system", &[(0, b"XFSB")]),
    at(&[0], "an XFS log device", &[(0, b"\xfe\xed\xba\xbe")]),
    at(&[65536], "a Btrfs file system", &[(64, b"_BHRfS_M")]),
    at(&[1024], "an F2FS file system", &[(0, b"\x10\x20\xf5\xf2")]),
    at(&[1024], "a NILFS2 file system", &[(0, b"\x02\0\0\0\0\0\x34\x34")]),
    at(&[8192, 65536], REISER, &[(52, b"ReIsErFs")]),
    at(&[8192, 65536], REISER, &[(52, b"ReIsEr2Fs")]),
    at(&[8192, 65536], REISER, &[(52, b"ReIsEr3Fs")]),
    at(&[65536], "a Reiser4 file system", &[(0, b"ReIsEr4")]),
    at(&[32768], "a JFS file system", &[(0, b"JFS1")]),
    at(&[65536], "a GFS2 file system", &[(0, b"\x01\x16\x19\x70\0\0\0\x01")]),
    at(&[1024, 2048, 4096, 8192], OCFS2, &[(0, b"OCFSV2")]),
    at(&[0], "an NTFS file system", &[(3, b"NTFS    ")]),
    at(&[0], "an exFAT file system", &[(3, b"EXFAT   ")]),
    at(&[0], "a ReFS file system", &[(3, b"ReFS\0")]),
    at(&[0], FAT, &[(54, b"FAT12   "), (510, MBR_MARK)]),
    at(&[0], FAT, &[(54, b"FAT16   "), (510, MBR_MARK)]),
    at(&[0], FAT, &[(54, b"FAT     "), (510, MBR_MARK)]),
    at(&[0], FAT, &[(82, b"FAT32   "), (510, MBR_MARK)]),
    at(&[32768], "an ISO 9660 file system", &[(1, b"CD001")]),
    at(&[32768], UDF, &[(1, b"BEA01")]),
    at(&[32768], UDF, &[(1, b"NSR0")]),
    at(&[1024], HFS_PLUS, &[(0, b"H+\0\x04")]),
    at(&[1024], HFS_PLUS, &[(0, b"HX\0\x05")]),
    at(&[0], "an APFS container", &[(32, b"NXSB")]),
    at(&[0], "a SquashFS file system", &[(0, b"hsqs")]),
    at(&[0], "a cramfs file system", &[(0, b"\x45\x3d\xcd\x28")]),
    at(&[1024], "an EROFS file system", &[(0, b"\xe2\xe1\xf5\xe0")]),
    at(&[0], "a zonefs file system", &[(0, b"SFOZ")]),
    // Partition tables.
    at(&[512, 4096], "a GPT partition table", &[(0, b"EFI PART")]),
    at(&[0], "an Apple partition table", &[(0, b"ER"), (512, b"PM\0\0")]),
    at(&[512], "a BSD disk label", &[(0, b"\x57\x45\x56\x82")]),
    at(&[0], "an SGI disk label", &[(0, b"\x0b\xe5\xa9\x41")]),
];

/// Reaches over everything in [`SIGNATURES`] and the first label of ZFS.
const HEAD_LEN: u64 = 256 << 10;
/// Reaches over everything that lies at the end of a device.
const TAIL_LEN: u64 = 160 << 10;

/// Tells what `device`, which has `device_size` bytes, holds, with its article, if it is known. LUKS is not.
///
/// # Errors
/// [`Error::Io`], and [`Error::Truncated`] when the device is smaller than `device_size`.
pub fn find(device: &mut (impl Read + Seek), device_size: u64) -> Result<Option<&'static str>, Error> {
    let head = DeviceWindow::read(device, 0, device_size.min(HEAD_LEN))?;
    let fixed = |signature: &&Signature| {
        let mut starts = signature.starts.iter();
        starts.any(|&start| {
            let mut parts = signature.parts.iter();
            parts.all(|&(offset, bytes)| head.has(start + to_u64(offset), bytes))
        })
    };
    if let Some(signature) = SIGNATURES.iter().find(fixed) {
        return Ok(Some(signature.name));
    }
    if has_uberblock(&head) {
        return Ok(Some("a part of a ZFS pool"));
    }
    let tail_len = device_size.min(TAIL_LEN);
    let tail = DeviceWindow::read(device, device_size - tail_len, tail_len)?;
    let found = at_the_end(&tail, device_size);
    Ok(found.or_else(|| is_mbr(&head).then_some("an MBR partition table")))
}

/// Bytes of a device from `start` on.
struct DeviceWindow {
    start: u64,
    bytes: Vec<u8>,
}

impl DeviceWindow {
    fn read(device: &mut (impl Read + Seek), start: u64, len: u64) -> Result<Self, Error> {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        read_at(device, start, &mut bytes, "the device")?;
        Ok(Self { start, bytes })
    }

    /// Tells if `wanted` is at `offset` of the device.
    fn has(&self, offset: u64, wanted: &[u8]) -> bool {
        let inside = offset.checked_sub(self.start);
        let inside = inside.and_then(|inside| usize::try_from(inside).ok());
        let rest = inside.and_then(|inside| self.bytes.get(inside..));
        rest.is_some_and(|rest| rest.starts_with(wanted))
    }
}

/// A ring of uberblocks ends the first label of a ZFS disk; they have the order of the bytes of the
/// machine that wrote them.
fn has_uberblock(head: &DeviceWindow) -> bool {
    const LITTLE: &[u8] = b"\x0c\xb1\xba\0\0\0\0\0";
    const BIG: &[u8] = b"\0\0\0\0\0\xba\xb1\x0c";
    let mut places = (128 << 10..256 << 10).step_by(1024);
    places.any(|place| head.has(place, LITTLE) || head.has(place, BIG))
}

fn at_the_end(tail: &DeviceWindow, device_size: u64) -> Option<&'static str> {
    let back = |bytes: u64| device_size.checked_sub(bytes);
    let has = |place: Option<u64>, bytes: &[u8]| place.is_some_and(|place| tail.has(place, bytes));
    // Linux RAID 1.0: 8 KiB from the end, down to 4 KiB.
    let version_1_0 = back(8192).map(|place| place & !4095);
    // 0.90: the last 64 KiB that are aligned to as much. The version follows the magic.
    let version_0_90 = (device_size & !0xffff).checked_sub(0x1_0000);
    if has(version_1_0, b"\xfc\x4e\x2b\xa9\x01\0\0\0")
        || has(version_0_90, b"\xfc\x4e\x2b\xa9\0\0\0\0\x5a\0\0\0")
        || has(version_0_90, b"\xa9\x2b\x4e\xfc\0\0\0\0\0\0\0\x5a")
    {
        return Some(RAID);
    }
    if has(back(1024), b"Intel Raid ISM Cfg Sig. ") {
        return Some("a part of an Intel RAID array");
    }
    let ddf: [&[u8]; 2] = [b"\xde\x11\xde\x11", b"\x11\xde\x11\xde"];
    let in_ddf_places = |magic: &&[u8]| has(back(512), magic) || has(back(257 * 512), magic);
    if ddf.iter().any(in_ddf_places) {
        return Some("a part of a DDF RAID array");
    }
    let magics: [&[u8]; 3] = [b"\x83\x74\x02\x6b", b"\x83\x74\x02\x6c", b"\x83\x74\x02\x6d"];
    let is_drbd = magics.iter().any(|magic| has(back(4096 - 60), magic));
    is_drbd.then_some("a DRBD device")
}

/// Two bytes, and four flags that say which partition boots.
fn is_mbr(head: &DeviceWindow) -> bool {
    let flags = [446, 462, 478, 494];
    let flag_fits = |place| head.has(place, &[0]) || head.has(place, &[0x80]);
    head.has(510, MBR_MARK) && flags.into_iter().all(flag_fits)
}

#[cfg(test)]
#[path = "signatures_tests.rs"]
mod tests;
