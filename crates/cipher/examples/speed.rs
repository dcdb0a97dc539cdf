//! Prints the speed of the sector cipher on this machine, beside a plain copy of the same bytes.
//!
//! `cargo run --release -p cryptline-cipher --example speed [CIPHER [KEY_BITS]]`

use std::hint::black_box;
use std::time::{Duration, Instant};

use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions};

/// Time given to one sample, so short that many are over before a busy machine takes the processor
/// away. The best of [`SAMPLES`] is printed, since whatever disturbs a sample only makes it slower.
const SAMPLE: Duration = Duration::from_micros(100);
const SAMPLES: u32 = 2000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let word = arguments.next().unwrap_or_else(|| "aes-xts-plain64".to_owned());
    let key_bits: usize = arguments.next().map_or(Ok(512), |bits| bits.parse())?;
    let key: Vec<u8> = (0..=255).cycle().take(key_bits / 8).collect();
    let spec = CipherSpec::parse(&word)?;

    println!("{:>6} {:>6} {:>12} {:>12} {:>8}  GB/s", "bytes", "sector", "encrypt", "decrypt", "copy");
    for len in [512, 4096, 16 << 10, 64 << 10] {
        for sector_size in [512_u32, 4096] {
            let options = SectorOptions { sector_size, iv_offset: 0, iv_large_sectors: false };
            let cipher = SectorCipher::new(&spec, &key, options)?;
            if usize::try_from(sector_size)? <= len {
                print_row(&cipher, len);
            }
        }
    }
    Ok(())
}

fn print_row(cipher: &SectorCipher, len: usize) {
    let source = vec![0x5a; len];
    let mut data = vec![0; len];
    let encrypt = best(len, || cipher.encrypt_in_place(8, black_box(&mut data)));
    let decrypt = best(len, || cipher.decrypt_in_place(8, black_box(&mut data)));
    let copy = best(len, || black_box(&mut data).copy_from_slice(black_box(&source)));
    println!(
        "{len:>6} {:>6} {encrypt:>12.2} {decrypt:>12.2} {copy:>8.1}  {}",
        cipher.sector_size(),
        cipher.backend_name()
    );
}

/// GB/s of the fastest sample.
fn best(len: usize, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    call();
    let calls = SAMPLE.as_nanos() / start.elapsed().as_nanos().max(1);
    let calls = u32::try_from(calls).unwrap_or(u32::MAX).max(1);
    let samples = (0..SAMPLES).map(|_| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed()
    });
    let fastest = samples.min().unwrap_or_default();
    let bytes = f64::from(calls) * f64::from(u32::try_from(len).expect("a small buffer"));
    bytes / fastest.as_secs_f64() / 1e9
}
