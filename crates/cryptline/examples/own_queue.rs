//! Many requests at a time through a channel of one's own: reads all of a volume, 32 requests deep, and prints
//! a checksum. `own_queue TARGET PASSPHRASE`; a TARGET such as `ram:64M` needs no passphrase.
//!
//! Completions come in any order; the token tells which request each one is.

use cryptline::Open;
use cryptline::engine::{Buffer, Completion, Request, Submitted};

const DEPTH: u64 = 32;
const BLOCK: u64 = 64 * 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let target = words.next().ok_or("TARGET [PASSPHRASE]")?;
    let open = Open::new(target);
    let volume = match words.next() {
        Some(phrase) => open.passphrase(&phrase).open()?,
        None => open.open()?,
    };
    let size = volume.info().size;
    let mut channel = volume.channel(64)?;
    let (mut next, mut sum, mut done) = (0, 0_u64, Vec::new());
    while next < size || channel.in_flight() > 0 {
        while next < size && (channel.in_flight() as u64) < DEPTH {
            let len = usize::try_from(BLOCK.min(size - next))?;
            let request = Request::read(next, Buffer::alloc(len)?, next);
            next += len as u64;
            if let Submitted::Done(completion) = channel.submit(request) {
                done.push(completion);
            }
        }
        if channel.in_flight() > 0 {
            channel.wait(&mut done)?;
        }
        for completion in done.drain(..) {
            sum = sum.wrapping_add(checksum(&completion)?);
        }
    }
    println!("{sum:016x}");
    Ok(())
}

/// The same whatever the order of the blocks.
fn checksum(completion: &Completion) -> Result<u64, Box<dyn std::error::Error>> {
    completion.result?;
    let Some(bytes) = &completion.request.data else {
        return Err("a read came back as something else".into());
    };
    let seed = completion.request.token.wrapping_mul(31);
    Ok(bytes.iter().fold(seed, |sum, byte| sum.wrapping_mul(257).wrapping_add(u64::from(*byte))))
}
