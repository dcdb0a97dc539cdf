//! Meaning of each call: a request for the lane, or an answer.

use cryptline_engine::{Buffer, Gate, Op};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::abi::{self, Body, CallHeader, FuseCall, OpenedFile};
use super::intake::FuseMessage;
use super::last_word;
use super::nodes::{FuseDisk, NodeKind};
use super::replies::ReplyForm;
use super::waiting::{self, ParkedRequest, buffers_of, needs};
use super::wire::{FuseTag, FuseWire};
use super::{PARTS, TRANSFER_MAX};
use crate::lane::{CHUNK, LaneRoom, WireInput, WireRequest};

/// Runs looked up for one search of a hole: each is a system call or two.
const EXTENTS_MAX: usize = 256;

/// Outcome of a call.
enum CallOutcome {
    /// The lane serves it.
    Serve(ReplyForm, WireRequest<()>),
    /// Success, with the bytes in the body.
    Answer,
    Silence,
}

/// Modes of fallocate(2).
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;
/// Whences of lseek(2).
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

impl FuseWire {
    /// A request for the lane, or `None` where the call was answered, wants no answer, or has to wait.
    pub(super) fn judge(&mut self, message: FuseMessage) -> Option<WireInput<FuseTag>> {
        let parsed = message.parse();
        if let Some((header, Ok(call))) = &parsed
            && let Some(disk) = self.has_its_share(*header, call)
        {
            self.waiting.hold(disk, message);
            return None;
        }
        let FuseMessage { mut batch, .. } = message;
        let taken = parsed.and_then(|(header, call)| self.settle(None, header, call));
        if let Some(WireInput::Asked(WireRequest {
            tag: FuseTag::Message(tag),
            op: Op::Write | Op::WriteFua,
            length,
            ..
        })) = taken
        {
            let mut buffers = [const { None }; PARTS];
            for (place, buffer) in buffers.iter_mut().zip(batch.take_buffers()) {
                *place = Some(buffer);
            }
            for buffer in self.keep(tag, length, buffers) {
                batch.push(buffer);
            }
        }
        self.intake.put_back(batch);
        taken
    }

    /// The disk of a call that has to wait, since it holds much of this lane already.
    fn has_its_share(&self, header: CallHeader, call: &FuseCall) -> Option<usize> {
        let is_served =
            matches!(call, FuseCall::Read { .. } | FuseCall::Write { .. } | FuseCall::Sync | FuseCall::Allocate { .. });
        let Some(NodeKind::Disk(_)) = self.start.nodes.kind(header.node).filter(|_| is_served) else { return None };
        let disk = self.start.nodes.device(header.node);
        self.waiting.must_wait(disk, needs(call)).then_some(disk)
    }

    /// A request that was parked; `None` where it was answered, or there are no buffers for it yet.
    pub(super) fn judge_parked(
        &mut self,
        disk: usize,
        parked: ParkedRequest,
        room: &LaneRoom,
    ) -> Option<WireInput<FuseTag>> {
        let Some(buffers) = waiting::buffers(&parked.data, room) else {
            self.waiting.put_back(disk, parked);
            return None;
        };
        let taken = self.settle(None, parked.header, Ok(parked.call))?;
        if let WireInput::Asked(WireRequest { tag: FuseTag::Message(tag), length, .. }) = taken {
            self.keep(tag, length, buffers).for_each(drop);
        }
        Some(taken)
    }

    /// Keeps the data of a write of `length` bytes. What is left over of its buffers.
    fn keep(
        &mut self,
        tag: usize,
        length: u64,
        buffers: [Option<Buffer>; PARTS],
    ) -> impl Iterator<Item = Buffer> + use<'_> {
        let each = buffers.into_iter().flatten().zip((0..).step_by(CHUNK as usize));
        each.filter_map(move |(buffer, at)| {
            if at >= length {
                return Some(buffer);
            }
            self.replies.keep(tag, at, buffer);
            None
        })
    }

    /// The same for a request in an entry.
    pub(super) fn judge_entry(&mut self, index: usize) -> Option<WireInput<FuseTag>> {
        let parse = |head: &[u8], rest: &[u8], len| abi::parse(head, rest, len);
        let parsed = self.entries.with_message(index, parse).flatten();
        let Some((header, call)) = parsed else {
            // It cannot be answered, and its entry cannot be used again.
            self.intake.fail(Errno::IO);
            return None;
        };
        self.settle(Some(index), header, call)
    }

    /// Answers a call, or asks the lane to serve it. It has come in an entry, or as a message.
    fn settle(
        &mut self,
        entry: Option<usize>,
        header: CallHeader,
        call: Result<FuseCall, Errno>,
    ) -> Option<WireInput<FuseTag>> {
        let mut body = Body::new();
        let op = call.as_ref().ok().and_then(op_of);
        let verdict = call.and_then(|call| self.decide(header, call, &mut body));
        let (form, device, length) = match verdict {
            Ok(CallOutcome::Silence) if entry.is_none() => return None,
            Ok(CallOutcome::Serve(form, asked)) => (form, self.start.nodes.device(header.node), asked.length),
            _ => (ReplyForm::Empty, 0, 0),
        };
        let tag = match entry {
            None => FuseTag::Message(self.replies.begin(header.unique, form, device)),
            Some(index) => {
                self.entries.begin(index, header.unique, form, device, length);
                FuseTag::Entry(index)
            }
        };
        match (tag, verdict) {
            (tag, Ok(CallOutcome::Serve(_, asked))) => {
                // An entry's memory is there.
                let whole = asked.whole && matches!(tag, FuseTag::Message(_));
                let asked = WireRequest { whole, ..asked.tagged(tag) };
                self.begin_share(device, &asked);
                return Some(WireInput::Asked(asked));
            }
            (FuseTag::Message(index), Ok(_)) => self.replies.end_with(index, body.as_bytes()),
            (FuseTag::Entry(index), Ok(_)) => self.entries.end_with(index, body.as_bytes()),
            (tag, Err(errno)) => {
                match tag {
                    FuseTag::Message(index) => self.replies.end(index, Err(errno)),
                    FuseTag::Entry(index) => self.entries.end(index, Err(errno), 0),
                }
                let nodes = &self.start.nodes;
                let op = op.filter(|_| matches!(nodes.kind(header.node), Some(NodeKind::Disk(_))));
                return op.map(|op| WireInput::Refused(nodes.device(header.node), Some(op)));
            }
        }
        None
    }

    /// Counts what the device may take of the lane for a request.
    fn begin_share(&mut self, device: usize, asked: &WireRequest<FuseTag>) {
        let buffers = match asked.tag {
            FuseTag::Message(index) => {
                let buffers = buffers_of(asked);
                self.replies.note_buffers(index, buffers);
                buffers
            }
            FuseTag::Entry(_) => 0,
        };
        self.waiting.begin(device, buffers);
    }

    fn decide(&self, header: CallHeader, call: FuseCall, body: &mut Body) -> Result<CallOutcome, Errno> {
        if call == FuseCall::Forget {
            return Ok(CallOutcome::Silence);
        }
        let kind = self.start.nodes.kind(header.node);
        match (call, kind) {
            (FuseCall::Destroy | FuseCall::Release, _) => Ok(CallOutcome::Answer),
            (FuseCall::Ioctl { command }, _) => {
                let name = self.start.nodes.last_word();
                let name = name.filter(|_| command == last_word::COMMAND);
                body.ioctl(&name.ok_or(Errno::NOTTY)?);
                Ok(CallOutcome::Answer)
            }
            (FuseCall::Arrange, _) => Err(Errno::PERM),
            (FuseCall::Init(_) | FuseCall::Other, _) => Err(Errno::NOSYS),
            (_, None) => Err(Errno::STALE),
            (FuseCall::Read { offset, size }, Some(NodeKind::Disk(disk))) => read(disk, offset, size),
            (FuseCall::Write { offset, size, durable }, Some(NodeKind::Disk(disk))) => {
                write(disk, offset, size, durable)
            }
            (FuseCall::Sync, Some(NodeKind::Disk(_))) => {
                Ok(CallOutcome::Serve(ReplyForm::Empty, WireRequest::new(Op::Flush, 0, 0)))
            }
            (FuseCall::Allocate { offset, length, mode }, Some(NodeKind::Disk(disk))) => {
                allocate(disk, offset, length, mode)
            }
            (FuseCall::Seek { offset, whence }, Some(NodeKind::Disk(disk))) => {
                let found = disk.ask(move |gate| seek(gate, offset, whence));
                let found = found.unwrap_or_else(|| seek_in_data(&disk.gate, offset, whence))?;
                body.long(found);
                Ok(CallOutcome::Answer)
            }
            (call, Some(kind)) => self.describe(header.node, kind, call, body),
        }
    }

    /// Answers calls about the files and folders themselves.
    fn describe(&self, node: u64, kind: NodeKind<'_>, call: FuseCall, body: &mut Body) -> Result<CallOutcome, Errno> {
        let nodes = &self.start.nodes;
        let attributes = nodes.attributes(node).ok_or(Errno::STALE)?;
        match (call, kind) {
            (FuseCall::Lookup(name), NodeKind::Folder) => {
                let found = nodes.find(node, name.as_bytes()).ok_or(Errno::NOENT)?;
                body.entry(&nodes.attributes(found).ok_or(Errno::NOENT)?);
            }
            (FuseCall::Lookup(_), _) => return Err(Errno::NOTDIR),
            (FuseCall::GetAttributes, _) => body.attributes(&attributes),
            (FuseCall::SetAttributes(change), _) => {
                if !attributes.is_kept_by(change) {
                    return Err(Errno::PERM);
                }
                body.attributes(&attributes);
            }
            (FuseCall::Open { flags }, NodeKind::Disk(_) | NodeKind::Info(_)) => {
                let reads = flags & OFlags::ACCMODE.bits() == OFlags::RDONLY.bits();
                let is_disk = matches!(kind, NodeKind::Disk(_));
                let can_write = matches!(kind, NodeKind::Disk(disk) if !disk.read_only);
                if !reads && !can_write {
                    return Err(Errno::ROFS);
                }
                body.open(if is_disk && self.start.cached { OpenedFile::Cached } else { OpenedFile::Direct });
            }
            (FuseCall::Read { offset, size }, NodeKind::Info(disk)) => {
                body.push(disk.info(offset, size as usize));
            }
            (FuseCall::OpenFolder, NodeKind::Folder) => body.open(OpenedFile::Folder),
            (FuseCall::ReadFolder { offset, size }, NodeKind::Folder) => {
                nodes.list(offset, size as usize, body);
            }
            (FuseCall::Statistics, _) => {
                let (size, files) = nodes.sum();
                body.statistics(size, files);
            }
            (FuseCall::Sync, _) => {}
            (FuseCall::Read { .. } | FuseCall::Write { .. } | FuseCall::Open { .. }, NodeKind::Folder) => {
                return Err(Errno::ISDIR);
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(CallOutcome::Answer)
    }
}

/// Operation of a call about data, as the statistics count it. Other calls are no requests to a disk.
fn op_of(call: &FuseCall) -> Option<Op> {
    match call {
        FuseCall::Read { .. } => Some(Op::Read),
        FuseCall::Write { .. } | FuseCall::Allocate { .. } => Some(Op::Write),
        FuseCall::Sync => Some(Op::Flush),
        _ => None,
    }
}

/// Reads nothing behind the end: a read that crosses it is short, and one behind it is empty.
fn read(disk: &FuseDisk, offset: u64, size: u32) -> Result<CallOutcome, Errno> {
    let length = inside(disk, offset, size)?;
    if length == 0 {
        return Ok(CallOutcome::Answer);
    }
    let asked = WireRequest { whole: true, ..WireRequest::new(Op::Read, offset, length.into()) };
    Ok(CallOutcome::Serve(ReplyForm::Data, asked))
}

/// As on a disk: what fits is written, and behind the end there is no space.
fn write(disk: &FuseDisk, offset: u64, size: u32, durable: bool) -> Result<CallOutcome, Errno> {
    if disk.read_only {
        return Err(Errno::PERM);
    }
    let length = inside(disk, offset, size)?;
    if length == 0 {
        return Err(Errno::NOSPC);
    }
    let asked = WireRequest::new(Op::write(durable), offset, length.into());
    Ok(CallOutcome::Serve(ReplyForm::Written(length), asked))
}

/// How much of a transfer is inside the disk.
fn inside(disk: &FuseDisk, offset: u64, size: u32) -> Result<u32, Errno> {
    if size == 0 || size > TRANSFER_MAX {
        return Err(Errno::INVAL);
    }
    let left = disk.gate.size().saturating_sub(offset);
    let length = u32::try_from(left).unwrap_or(u32::MAX).min(size);
    if length > 0 {
        check_blocks(disk, offset, length.into())?;
    }
    Ok(length)
}

fn check_blocks(disk: &FuseDisk, offset: u64, length: u64) -> Result<(), Errno> {
    let block = u64::from(disk.gate.geometry().logical_block);
    let is_aligned = (offset | length) & (block - 1) == 0;
    is_aligned.then_some(()).ok_or(Errno::INVAL)
}

/// As on a block device. Punching is refused where the device cannot do it: zeros in its stead would
/// take up space. Either way the range reads as zeros, on which programs rely.
fn allocate(disk: &FuseDisk, offset: u64, length: u64, mode: u32) -> Result<CallOutcome, Errno> {
    let (fast, may_unmap) = match mode {
        mode if mode == PUNCH_HOLE | KEEP_SIZE => (true, true),
        mode if mode & !KEEP_SIZE == ZERO_RANGE => (false, false),
        _ => return Err(Errno::OPNOTSUPP),
    };
    if disk.read_only {
        return Err(Errno::PERM);
    }
    let end = offset.checked_add(length).ok_or(Errno::INVAL)?;
    let size = disk.gate.size();
    if length == 0 || offset >= size || end > size && mode & KEEP_SIZE == 0 {
        return Err(Errno::INVAL);
    }
    let length = end.min(size) - offset;
    check_blocks(disk, offset, length)?;
    let asked = WireRequest { fast, ..WireRequest::new(Op::zero(may_unmap), offset, length) };
    let form = if fast { ReplyForm::Hole } else { ReplyForm::Empty };
    Ok(CallOutcome::Serve(form, asked))
}

/// The same where nothing is known of holes: then all of it is data.
fn seek_in_data(gate: &Gate, offset: u64, whence: u32) -> Result<u64, Errno> {
    let size = gate.size();
    match whence {
        SEEK_DATA | SEEK_HOLE if offset >= size => Err(Errno::NXIO),
        SEEK_DATA => Ok(offset),
        SEEK_HOLE => Ok(size),
        _ => Err(Errno::INVAL),
    }
}

/// The next byte from `offset` on that lies in data, or in a hole. Only what reads as zeros is a hole. Where that
/// takes long to find out, the rest counts as data.
fn seek(gate: &Gate, offset: u64, whence: u32) -> Result<u64, Errno> {
    let size = gate.size();
    let wants_hole = match whence {
        SEEK_DATA => false,
        SEEK_HOLE => true,
        _ => return Err(Errno::INVAL),
    };
    if offset >= size {
        return Err(Errno::NXIO);
    }
    let mut at = offset;
    for _ in 0..EXTENTS_MAX {
        if at >= size {
            // There is a hole behind the end of every file.
            return if wants_hole { Ok(size) } else { Err(Errno::NXIO) };
        }
        let extent = gate.extent(at, size - at).map_err(|fault| fault.errno())?;
        if extent.zero == wants_hole {
            return Ok(at);
        }
        at += extent.len;
    }
    Ok(if wants_hole { size } else { at.min(size - 1) })
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
