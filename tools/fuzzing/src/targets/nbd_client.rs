//! A whole NBD session seen from the client: base `nbd` as programs use it, and a server that lies by a script.
//!
//! ```text
//!   setup      8 bytes: how it is used and what is offered 1, flags 1, block sizes 2, a byte of the handshake that is
//!              wrong 2 and from which connection on 1, batch 1
//!   records    6 bytes each: what is asked 1, place 1, length 1; what becomes of the answer 3
//! ```
//!
//! Checked is what holds whatever the server does: opening ends, every request ends once, a read brings what was
//! written as long as nobody has lied, and no flush says yes once something was lost. Nothing hangs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::liar::{Liar, LiarScript, SIZE};
use cryptline_engine::base::NbdDevice;
use cryptline_engine::{Buffer, Channel, Fault, Gate, Op, Request, Submitted};
use cryptline_nbd::NbdUri;
use cryptline_nbd::uri::{Address, TlsOptions};

const RECORDS_MAX: usize = 48;
/// Requests under way at a time.
const DEPTH: u32 = 8;
/// For how long a lost connection is made again.
const RECONNECT: Duration = Duration::from_millis(150);
/// Bytes of one request, about.
const LEN_MAX: usize = 96 << 10;

/// Tries one input.
pub fn target(data: &[u8]) {
    let Some((setup, records)) = data.split_first_chunk::<8>() else {
        return;
    };
    let (records, _) = records.as_chunks::<6>();
    let records = &records[..records.len().min(RECORDS_MAX)];
    let [how, flags, least, most, at, bits, from, batch] = *setup;
    let server = Liar::start(LiarScript {
        flags: u16::from(flags) << 1,
        structured: how & 2 != 0,
        allocation: how & 4 != 0,
        sizes: (how & 8 != 0).then(|| [1 << (least % 24), 4096, 1 << (most % 32)]),
        flip: (bits != 0).then(|| (at.into(), bits, (from % 4).into())),
        answers: records.iter().map(|record| [record[3], record[4], record[5]]).collect(),
    });
    let reconnect = (how & 16 != 0).then_some(RECONNECT);
    let uri = NbdUri {
        tls: false,
        address: Address::Unix(PathBuf::from(OsStr::from_bytes(&server.name))),
        export: String::new(),
        tls_options: TlsOptions::default(),
    };
    if let Ok(device) = NbdDevice::open_again(&uri, how & 32 != 0, reconnect) {
        let gate = Gate::new(device);
        if let Ok(channel) = Channel::open(&gate, super::backend(how), DEPTH) {
            User { gate: &gate, channel, server: &server, model: vec![0; SIZE as usize], has_lost: false }
                .play(records, 1 + usize::from(batch % 6));
        }
    }
    server.end();
}

/// Party that uses the disk.
struct User<'a> {
    gate: &'a Gate,
    channel: Channel,
    server: &'a Liar,
    /// Contents of the disk, while they are known.
    model: Vec<u8>,
    has_lost: bool,
}

impl User<'_> {
    fn play(mut self, records: &[[u8; 6]], batch: usize) {
        let mut done = Vec::new();
        for (records, first) in records.chunks(batch).zip((0..).step_by(batch)) {
            let mut under_way = 0;
            for (record, token) in records.iter().zip(first..) {
                let Some(request) = self.request(record, token, batch == 1) else {
                    continue;
                };
                match self.channel.submit(request) {
                    Submitted::Done(end) => done.push(end),
                    Submitted::Pending => under_way += 1,
                }
            }
            let before = done.len();
            while self.channel.in_flight() > 0 {
                self.channel.wait(&mut done).expect("a ring that works");
            }
            assert_eq!(done.len(), before + under_way, "each ends once");
            for end in done.drain(..) {
                self.judge(&end.request, end.result, batch == 1);
            }
        }
        if self.has_lost {
            assert!(self.flush().is_err(), "something was lost");
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        let mut done = Vec::new();
        if let Submitted::Done(end) = self.channel.submit(Request::flush(0)) {
            return end.result;
        }
        while done.is_empty() {
            self.channel.wait(&mut done).expect("a ring that works");
        }
        done[0].result
    }

    /// The request of a record; `None` where the disk has no room for any.
    fn request(&mut self, record: &[u8; 6], token: u64, alone: bool) -> Option<Request> {
        let geometry = *self.gate.geometry();
        let block = u64::from(geometry.logical_block);
        let [what, place, len, ..] = *record;
        let blocks = geometry.size / block;
        if blocks == 0 || block > 1 << 20 {
            return None;
        }
        let at = u64::from(place) * 8 % blocks;
        let most = (LEN_MAX as u64 / block).max(1);
        let len = (1 + u64::from(len) % most).min(blocks - at) * block;
        let offset = at * block;
        let buffer = |len: u64| Buffer::alloc(len as usize).expect("memory");
        let request = match what % 8 {
            0 | 1 => Request::read(offset, buffer(len), token),
            2 | 3 => {
                let mut data = buffer(len);
                data.iter_mut().zip(0_u32..).for_each(|(byte, at)| {
                    *byte = (at / 509) as u8 ^ record[4] ^ token as u8;
                });
                if alone && let Some(known) = self.known(offset, len) {
                    known.copy_from_slice(&data);
                }
                Request::write(offset, data, what & 8 != 0, token)
            }
            4 => Request::flush(token),
            5 => Request::new(Op::Discard, offset, len, token),
            6 => Request::new(Op::zero(what & 8 != 0), offset, len, token),
            _ if what & 8 != 0 => Request::new(Op::Cache, offset, len, token),
            _ => {
                let extent = self.gate.extent(offset, len);
                if let Ok(extent) = extent {
                    assert!((1..=len).contains(&extent.len), "{extent:?} of {len}");
                }
                return None;
            }
        };
        if let (true, Op::Discard | Op::Zero | Op::ZeroUnmap) = (alone, request.op)
            && !geometry.read_only
            && let Some(known) = self.known(offset, len)
        {
            known.fill(0);
        }
        Some(request)
    }

    fn known(&mut self, offset: u64, len: u64) -> Option<&mut [u8]> {
        self.model.get_mut(offset as usize..(offset + len) as usize)
    }

    fn judge(&mut self, request: &Request, result: Result<(), Fault>, alone: bool) {
        self.has_lost |= result == Err(Fault::Lost);
        match (request.op, result) {
            (Op::Flush, Ok(())) => assert!(!self.has_lost, "something was lost"),
            (Op::Read, Ok(())) if alone && !self.server.has_lied() => {
                let found = request.data.as_ref().expect("a read comes back with its data");
                let (offset, len) = (request.offset, found.len() as u64);
                if let Some(known) = self.known(offset, len) {
                    assert!(known == &found[..], "another disk at {offset}");
                }
            }
            (Op::Read | Op::Flush, _) => {}
            // What it has now is not known.
            (_, Err(_)) if alone => self.model.clear(),
            _ => {}
        }
    }
}
