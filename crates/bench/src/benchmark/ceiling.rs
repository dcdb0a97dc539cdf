//! AES-XTS over the most that the processor's AES instructions can do.

use std::hint::black_box;

use cryptline_cipher::ceiling::{Share, Width};
use cryptline_cipher::{Backend, SectorCipher};

use crate::Error;
use crate::load::buffer;
use crate::report::Figure;

/// Bytes that one sample works on: some 20 µs.
const SAMPLE_BYTES: u32 = 256 << 10;
/// Enough for some that nothing disturbs.
const SAMPLES: usize = 401;
/// Rounds of AES-256.
const ROUNDS: u32 = 14;

/// A cipher sector and a request in bytes, the name of the figure, and the smallest value that is
/// good enough for the widest kernels.
const FIGURES: [(u32, u32, &str, f64); 4] = [
    (512, 4096, "xts256_512_4k_of_ceiling", 0.90),
    (4096, 4096, "xts256_4096_4k_of_ceiling", 0.90),
    (512, 65536, "xts256_512_64k_of_ceiling", 0.95),
    (4096, 65536, "xts256_4096_64k_of_ceiling", 0.95),
];

/// The figures of `cipher`, which is AES-256-XTS. None on a processor whose ceiling is not known.
pub fn figures(cipher: &SectorCipher) -> Result<Vec<Figure>, Error> {
    let Ok(backend) = Backend::selected() else {
        return Ok(Vec::new());
    };
    let Some(width) = Width::of(backend) else {
        return Ok(Vec::new());
    };
    let of_sector = FIGURES.into_iter();
    let of_sector = of_sector.filter(|(sector, ..)| *sector == cipher.sector_size());
    let figure = |(_, request, name, goal)| {
        let share = share(cipher, width, request)?;
        let other = backend != Backend::Avx512;
        let figure = Figure::new(name, (share.kept > 0).then_some(share.of_ceiling))
            .at_least(goal)
            .unless(other.then_some("the goal is for the AVX-512 kernels"))
            .needs("the machine was never quiet enough to measure it");
        Ok(figure)
    };
    of_sector.map(figure).collect()
}

fn share(cipher: &SectorCipher, width: Width, request: u32) -> Result<Share, Error> {
    let mut buffer = buffer(request)?;
    Ok(width.share(ROUNDS, SAMPLE_BYTES, SAMPLES, || {
        for _ in 0..SAMPLE_BYTES / request {
            cipher.encrypt_in_place(8, black_box(&mut buffer));
        }
    }))
}

#[cfg(test)]
mod tests {
    use cryptline_cipher::CipherSpec;

    use super::*;
    use crate::volume::sector_cipher;

    #[test]
    fn each_sector_size_has_its_figures_and_they_are_shares() {
        for sector_size in [512, 4096] {
            let spec = CipherSpec::parse("aes-xts-plain64").unwrap();
            let key: Vec<u8> = (0..64).collect();
            let cipher = sector_cipher(&spec, &key, sector_size).unwrap();
            let figures = figures(&cipher).unwrap();
            let known = Backend::selected().is_ok_and(|backend| Width::of(backend).is_some());
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
