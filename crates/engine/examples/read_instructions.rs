//! One 4 KiB read through a stack, for a program that counts its instructions.
//!
//! `valgrind --tool=callgrind --toggle-collect='*measured*' read_instructions ram|file|linear|cut|crypt|crypt-file`
//!
//! `ram` is gate and RAM disk; `linear` and `cut` lay two ranges over it and read within one and across their border; `crypt`
//! is a cipher that does nothing over it. `file` goes over a ring whose kernel answers at once and copies nothing, and so does
//! `crypt-file`, through that cipher.
//! `cargo xtask counts` runs them and compares with `crates/engine/instructions.txt`.

use std::error::Error;
use std::hint::black_box;
use std::io;
use std::os::fd::OwnedFd;

use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions};
use cryptline_engine::base::{DirectMode, Image, RamDevice};
use cryptline_engine::layer::linear::{Segment, joined};
use cryptline_engine::layer::{CryptDevice, CryptOptions};
use cryptline_engine::{BackendChoice, Buffer, Channel, Completion, Gate, Request, Submitted};
use cryptline_sys::{Io, SimulatedKernel, Simulation};
use rustix::io::Errno;

const BLOCK: usize = 4096;
const SIZE: u64 = 1 << 20;

/// A kernel in which each operation is done as soon as it is asked about.
struct Prompt;

impl SimulatedKernel for Prompt {
    fn run(&self, _: &OwnedFd, io: &mut Io) -> Result<usize, Errno> {
        Ok(match io {
            Io::Read { len, .. } | Io::Write { len, .. } => *len,
            _ => 0,
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_default();
    let (gate, offset, backend) = match path.as_str() {
        "ram" => (ram()?, 0, BackendChoice::Syscalls),
        "linear" => (halves(ram()?)?, 0, BackendChoice::Syscalls),
        "cut" => (halves(ram()?)?, SIZE / 2 - 512, BackendChoice::Syscalls),
        "crypt" => (encrypted_by_nothing(ram()?)?, 0, BackendChoice::Syscalls),
        "file" => (file()?, 0, BackendChoice::Simulated(Simulation::new(&Prompt))),
        "crypt-file" => (encrypted_by_nothing(file()?)?, 0, BackendChoice::Simulated(Simulation::new(&Prompt))),
        other => return Err(format!("{other:?} is none of ram, linear, cut, crypt, file and crypt-file").into()),
    };
    let mut channel = Channel::open(&gate, backend, 8)?;
    let mut done = Vec::with_capacity(8);
    // The first read resolves symbols and grows tables.
    carry_out(&mut channel, Request::read(offset, Buffer::alloc(BLOCK)?, 0), &mut done)?.result?;
    measured(&mut channel, Request::read(offset, Buffer::alloc(BLOCK)?, 0), &mut done)?.result?;
    Ok(())
}

#[inline(never)]
fn measured(channel: &mut Channel, request: Request, done: &mut Vec<Completion>) -> io::Result<Completion> {
    black_box(carry_out(black_box(channel), request, done))
}

#[inline(never)]
fn carry_out(channel: &mut Channel, request: Request, done: &mut Vec<Completion>) -> io::Result<Completion> {
    if let Submitted::Done(completion) = channel.submit(request) {
        return Ok(completion);
    }
    loop {
        if let Some(completion) = done.pop() {
            return Ok(completion);
        }
        channel.wait(done)?;
    }
}

fn ram() -> Result<Gate, Box<dyn Error>> {
    Ok(Gate::new(RamDevice::new(SIZE)?))
}

/// The halves of a device in each other's place.
fn halves(lower: Gate) -> Result<Gate, Box<dyn Error>> {
    let half = |offset| Segment { lower: lower.clone(), offset, len: SIZE / 2 };
    Ok(joined(vec![half(SIZE / 2), half(0)])?)
}

fn encrypted_by_nothing(lower: Gate) -> Result<Gate, Box<dyn Error>> {
    let options = SectorOptions { sector_size: 512, iv_offset: 0, iv_large_sectors: false };
    let cipher = SectorCipher::new(&CipherSpec::parse("cipher_null-ecb")?, &[], options)?;
    Ok(Gate::new(CryptDevice::new(lower, cipher, CryptOptions::default())?))
}

fn file() -> Result<Gate, Box<dyn Error>> {
    let file = tempfile::NamedTempFile::new()?;
    file.as_file().set_len(SIZE)?;
    let image = Image::open(file.path(), false)?;
    Ok(Gate::new(image.into_device(512, DirectMode::Off)?))
}
