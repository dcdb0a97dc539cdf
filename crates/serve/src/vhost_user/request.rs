//! virtio-blk requests (virtio 1.3, section 5.2.6): what a chain asks for, judged against the disk.
//!
//! ```text
//! readable   type u32, ioprio u32, sector u64, data of a write
//! writable   data of a read, status u8
//! ```
//!
//! The layout is free: a header may be cut into any segments and share one with the data.

use cryptline_engine::Op;
use cryptline_sys::GuestMemory;

use super::config::{SERIAL, SectorLimits, TRANSFER_MAX};
use super::queue::{DescriptorChain, RingError};
use crate::lane::WireRequest;

pub(super) const SECTOR: u64 = 512;
const HEADER: usize = 16;
/// The payload of a discard or a zeroing: sector u64, count u32, flags u32.
const RANGE: usize = 16;
const UNMAP: u32 = 1;

mod kind {
    pub const IN: u32 = 0;
    pub const OUT: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RequestStatus {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

/// Decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestVerdict {
    /// The lane serves it.
    Serve(WireRequest<()>),
    /// The disk's name is written to the chain.
    Identify {
        length: usize,
    },
    Refuse(RequestStatus, Option<Op>),
}

/// Where the data of a write begins among the readable bytes.
pub(super) const DATA_AT: u64 = HEADER as u64;

/// Reads the header of a request, once, and judges it.
///
/// Errors: what makes it no request.
pub(super) fn judge(
    chain: &DescriptorChain,
    memory: &GuestMemory,
    limits: &SectorLimits,
) -> Result<RequestVerdict, RingError> {
    let (readable, writable) = (chain.readable_len(), chain.writable_len());
    if readable < DATA_AT || writable == 0 {
        return Err(RingError::Header);
    }
    let mut header = [0; HEADER];
    chain.read(memory, 0, &mut header)?;
    let (kind, sector) = (word(&header, 0), long(&header, 8));
    let (to_device, to_driver) = (readable - DATA_AT, writable - 1);
    let refuse = |status| Ok(RequestVerdict::Refuse(status, counted_as(kind)));
    match kind {
        kind::IN => Ok(transfer(kind, Op::Read, sector, to_driver, limits)),
        kind::OUT | kind::DISCARD | kind::WRITE_ZEROES if limits.read_only => refuse(RequestStatus::IoError),
        kind::OUT => Ok(transfer(kind, Op::write(limits.writes_durably()), sector, to_device, limits)),
        kind::FLUSH => Ok(RequestVerdict::Serve(WireRequest::new(Op::Flush, 0, 0))),
        kind::GET_ID => {
            let most = SERIAL as u64;
            let length = usize::try_from(to_driver.min(most)).unwrap_or(SERIAL);
            Ok(RequestVerdict::Identify { length })
        }
        kind::DISCARD | kind::WRITE_ZEROES => {
            let is_offered = if kind == kind::DISCARD { limits.discards } else { limits.zeroes };
            // One range a request, which is what the configuration says.
            if !is_offered || to_device > RANGE as u64 {
                return refuse(RequestStatus::Unsupported);
            }
            if to_device < RANGE as u64 {
                return Err(RingError::Header);
            }
            let mut range = [0; RANGE];
            chain.read(memory, DATA_AT, &mut range)?;
            Ok(change(kind, range, limits))
        }
        _ => refuse(RequestStatus::Unsupported),
    }
}

fn transfer(kind: u32, op: Op, sector: u64, length: u64, limits: &SectorLimits) -> RequestVerdict {
    let is_possible = (1..=TRANSFER_MAX).contains(&length) && length.is_multiple_of(SECTOR);
    match limits.place(sector, length) {
        Some(offset) if is_possible => RequestVerdict::Serve(WireRequest::new(op, offset, length)),
        _ => RequestVerdict::Refuse(RequestStatus::IoError, counted_as(kind)),
    }
}

/// A discard, or a zeroing.
fn change(kind: u32, range: [u8; RANGE], limits: &SectorLimits) -> RequestVerdict {
    let is_discard = kind == kind::DISCARD;
    let (sector, count, flags) = (long(&range, 0), word(&range, 8), word(&range, 12));
    let length = u64::from(count) * SECTOR;
    let place = limits.place(sector, length);
    let most = if is_discard { SectorLimits::RANGE_MAX } else { limits.zeroes_max };
    let is_possible = (1..=most).contains(&count);
    let (Some(offset), true) = (place, is_possible) else {
        return RequestVerdict::Refuse(RequestStatus::IoError, counted_as(kind));
    };
    let known = if is_discard { 0 } else { UNMAP };
    if flags & !known != 0 {
        return RequestVerdict::Refuse(RequestStatus::Unsupported, counted_as(kind));
    }
    let op = if is_discard { Op::Discard } else { Op::zero(flags & UNMAP != 0) };
    RequestVerdict::Serve(WireRequest { durable: limits.writes_durably(), ..WireRequest::new(op, offset, length) })
}

/// Operation as which the statistics count a request that is refused.
fn counted_as(kind: u32) -> Option<Op> {
    match kind {
        kind::IN => Some(Op::Read),
        kind::OUT | kind::WRITE_ZEROES => Some(Op::Write),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes[at..].first_chunk().copied();
    bytes.map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[at..].first_chunk().copied();
    bytes.map_or(0, u64::from_le_bytes)
}
