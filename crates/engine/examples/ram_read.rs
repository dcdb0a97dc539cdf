//! Cost of the layers: 4 KiB reads of a RAM disk, one at a time, on one thread.
//!
//! ```text
//! cargo run --release -p cryptline-engine --example ram_read
//! ```
//!
//! `copy` is the memory copy alone, the floor. `plain` adds gate and queue, `null` a crypt layer
//! that encrypts nothing, `aes` the cipher. `cipher alone` decrypts one block in place again and
//! again, `copy and cipher` what a read must do and nothing else: what `aes` takes beyond it is
//! the engine's. Takes the best of several rounds.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions};
use cryptline_engine::base::RamDevice;
use cryptline_engine::layer::{CryptDevice, CryptOptions};
use cryptline_engine::{BackendChoice, Buffer, Channel, Gate, Request, Submitted};

/// Bytes in a read.
const BLOCK: usize = 4096;
/// Bytes of the disk: more than the second-level cache, less than the third.
const SIZE: u64 = 16 * 1024 * 1024;
/// How long one round takes.
const ROUND: Duration = Duration::from_millis(150);
/// Rounds of which the best counts.
const ROUNDS: usize = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let aes = |sector| cipher("aes-xts-plain64", 64, sector);
    let null = || cipher("cipher_null-ecb", 0, 512);
    println!("4 KiB reads, one at a time; {}", aes(4096)?.backend_name());
    let plain = read_rate(&ram()?)?;
    let rows = [
        ("copy alone", copy_rate(None)),
        ("plain", plain),
        ("null over plain", read_rate(&crypt(null()?)?)?),
        ("aes-256-xts 4096", read_rate(&crypt(aes(4096)?)?)?),
        ("  copy and cipher", copy_rate(Some(&aes(4096)?))),
        ("  cipher alone", cipher_rate(&aes(4096)?)),
        ("aes-256-xts 512", read_rate(&crypt(aes(512)?)?)?),
        ("  copy and cipher", copy_rate(Some(&aes(512)?))),
        ("  cipher alone", cipher_rate(&aes(512)?)),
    ];
    println!("{:20} {:>10} {:>9} {:>9}", "", "MB/s", "ns/read", "of plain");
    for (name, rate) in rows {
        let nanoseconds = BLOCK as f64 / rate * 1000.0;
        let ratio = rate / plain;
        println!("{name:20} {rate:10.0} {nanoseconds:9.0} {ratio:9.3}");
    }
    Ok(())
}

fn ram() -> Result<Gate, Box<dyn Error>> {
    let gate = Gate::new(RamDevice::new(SIZE)?);
    let mut channel = Channel::open(&gate, BackendChoice::Syscalls, 8)?;
    // Untouched memory is one shared page of zeros: write all of it.
    let mut data = Buffer::alloc(BLOCK)?;
    for offset in (0..SIZE).step_by(BLOCK) {
        data.fill(u8::try_from(offset / BLOCK as u64 % 251)?);
        match channel.submit(Request::write(offset, data, false, 0)) {
            Submitted::Done(done) => data = buffer_of(done.request),
            Submitted::Pending => unreachable!("RAM answers at once"),
        }
    }
    Ok(gate)
}

fn crypt(cipher: SectorCipher) -> Result<Gate, Box<dyn Error>> {
    let options = CryptOptions { start: 0, size: None, allow_discards: false, ..CryptOptions::default() };
    Ok(Gate::new(CryptDevice::new(ram()?, cipher, options)?))
}

fn cipher(word: &str, key_bytes: usize, sector_size: u32) -> Result<SectorCipher, Box<dyn Error>> {
    let key: Vec<u8> = (0..=u8::MAX).take(key_bytes).collect();
    let options = SectorOptions { sector_size, iv_offset: 0, iv_large_sectors: false };
    Ok(SectorCipher::new(&CipherSpec::parse(word)?, &key, options)?)
}

/// MB/s of reads through a gate.
fn read_rate(gate: &Gate) -> Result<f64, Box<dyn Error>> {
    let mut channel = Channel::open(gate, BackendChoice::Syscalls, 8)?;
    let mut buffer = Some(Buffer::alloc(BLOCK)?);
    Ok(rate(|offset| {
        let target = buffer.take().expect("the last read gave it back");
        match channel.submit(Request::read(offset, target, 0)) {
            Submitted::Done(done) => {
                assert!(done.result.is_ok());
                buffer = Some(buffer_of(done.request));
            }
            Submitted::Pending => unreachable!("RAM answers at once"),
        }
    }))
}

/// MB/s of the copy, and of the decryption after it.
fn copy_rate(cipher: Option<&SectorCipher>) -> f64 {
    let source = vec![1u8; usize::try_from(SIZE).expect("fits in memory")];
    let mut target = Buffer::alloc(BLOCK).expect("memory");
    rate(|offset| {
        let start = usize::try_from(offset).expect("fits in memory");
        target.copy_from_slice(&source[start..start + BLOCK]);
        if let Some(cipher) = cipher {
            cipher.decrypt_in_place(offset / 512, &mut target);
        }
        black_box(&mut target);
    })
}

/// MB/s of the decryption alone, of a block in the cache.
fn cipher_rate(cipher: &SectorCipher) -> f64 {
    let mut block = Buffer::alloc(BLOCK).expect("memory");
    rate(|offset| {
        cipher.decrypt_in_place(offset / 512, &mut block);
        black_box(&mut block);
    })
}

/// MB/s of `read`, called with offsets that walk over the disk.
fn rate(mut read: impl FnMut(u64)) -> f64 {
    let blocks = SIZE / BLOCK as u64;
    let mut best = 0.0f64;
    for _ in 0..ROUNDS {
        let (start, mut count) = (Instant::now(), 0u64);
        while start.elapsed() < ROUND {
            for _ in 0..256 {
                read(count * 7 % blocks * BLOCK as u64);
                count += 1;
            }
        }
        let bytes = count as f64 * BLOCK as f64;
        best = best.max(bytes / start.elapsed().as_secs_f64() / 1e6);
    }
    best
}

fn buffer_of(request: Request) -> Buffer {
    request.data.expect("a transfer comes back with its data")
}
