//! AES over the most that the processor's AES instructions can do: XTS, and CBC with ESSIV.

use std::hint::black_box;

use cryptline_cipher::ceiling::{AesWidth, CeilingShare};
use cryptline_cipher::{SectorCipher, XtsBackend};

use super::ciphers::CipherDirection;
use super::report::BenchmarkFigure;
use super::work::buffer;
use crate::CliError;

/// Bytes that one sample works on: some 20 µs.
const SAMPLE_BYTES: u32 = 256 << 10;
/// Enough for some that nothing disturbs.
const SAMPLES: usize = 401;
/// Rounds of AES-256.
const ROUNDS: u32 = 14;

/// A figure, and what is measured for it.
struct MeasuredShape {
    cipher: &'static str,
    key_bits: usize,
    direction: CipherDirection,
    /// Bytes in a cipher sector and in a request.
    sector: u32,
    request: u32,
    name: &'static str,
    /// The smallest value that is good enough for the widest kernels.
    goal: f64,
}

const FIGURES: [MeasuredShape; 8] = [
    xts(512, 4096, "xts256_512_4k_of_ceiling", 0.90),
    xts(4096, 4096, "xts256_4096_4k_of_ceiling", 0.90),
    xts(512, 65536, "xts256_512_64k_of_ceiling", 0.95),
    xts(4096, 65536, "xts256_4096_64k_of_ceiling", 0.95),
    // Within a sector each block waits for the one before, so encryption needs many sectors.
    cbc(CipherDirection::Encrypt, 512, "cbc256_512_64k_encrypt_of_ceiling", 0.5),
    cbc(CipherDirection::Decrypt, 512, "cbc256_512_64k_decrypt_of_ceiling", 0.8),
    cbc(CipherDirection::Encrypt, 4096, "cbc256_4096_64k_encrypt_of_ceiling", 0.5),
    cbc(CipherDirection::Decrypt, 4096, "cbc256_4096_64k_decrypt_of_ceiling", 0.8),
];

const fn xts(sector: u32, request: u32, name: &'static str, goal: f64) -> MeasuredShape {
    MeasuredShape {
        cipher: "aes-xts-plain64",
        key_bits: 512,
        direction: CipherDirection::Encrypt,
        sector,
        request,
        name,
        goal,
    }
}

const fn cbc(direction: CipherDirection, sector: u32, name: &'static str, goal: f64) -> MeasuredShape {
    MeasuredShape { cipher: "aes-cbc-essiv:sha256", key_bits: 256, direction, sector, request: 65536, name, goal }
}

/// The figures of `cipher`, which is the one of this word and key. None on a processor whose ceiling
/// is not known.
pub fn figures(cipher: &SectorCipher, word: &str, key_bits: usize) -> Result<Vec<BenchmarkFigure>, CliError> {
    let Ok(backend) = XtsBackend::selected() else {
        return Ok(Vec::new());
    };
    let Some(width) = AesWidth::of(backend) else {
        return Ok(Vec::new());
    };
    let of_cipher = FIGURES
        .iter()
        .filter(|shape| (shape.cipher, shape.key_bits, shape.sector) == (word, key_bits, cipher.sector_size()));
    let figure = |shape: &MeasuredShape| {
        let share = share(cipher, width, shape)?;
        let other = backend != XtsBackend::Avx512;
        let mut figure = BenchmarkFigure::new(shape.name, (share.kept > 0).then_some(share.of_ceiling), "ratio")
            .at_least(shape.goal, other.then_some("the goal is for the AVX-512 kernels"));
        if figure.value.is_none() {
            figure.note = Some("the machine was never quiet enough to measure it".into());
        }
        Ok(figure)
    };
    of_cipher.map(figure).collect()
}

fn share(cipher: &SectorCipher, width: AesWidth, shape: &MeasuredShape) -> Result<CeilingShare, CliError> {
    let mut buffer = buffer(shape.request)?;
    let run = shape.direction.run();
    Ok(width.share(ROUNDS, SAMPLE_BYTES, SAMPLES, || {
        for _ in 0..SAMPLE_BYTES / shape.request {
            run(cipher, 8, black_box(&mut buffer));
        }
    }))
}

#[cfg(test)]
mod tests {
    use cryptline_cipher::CipherSpec;

    use super::super::ciphers::sector_cipher;
    use super::*;

    #[test]
    fn each_sector_size_has_its_figures_and_they_are_shares() {
        let ciphers = [("aes-xts-plain64", 64), ("aes-cbc-essiv:sha256", 32)];
        for (word, key_len) in ciphers {
            for sector_size in [512, 4096] {
                let spec = CipherSpec::parse(word).unwrap();
                let key: Vec<u8> = (0..key_len).collect();
                let cipher = sector_cipher(&spec, &key, sector_size).unwrap();
                let figures = figures(&cipher, word, key.len() * 8).unwrap();
                let known = XtsBackend::selected().is_ok_and(|backend| AesWidth::of(backend).is_some());
                assert_eq!(figures.len(), if known { 2 } else { 0 });
                for figure in &figures {
                    assert!(figure.name.contains(&format!("_{sector_size}_")));
                    if let Some(value) = figure.value {
                        assert!(value > 0.0 && value < 1.2, "{value}");
                    }
                }
            }
        }
    }
}
