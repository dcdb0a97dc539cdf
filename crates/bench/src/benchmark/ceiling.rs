//! AES-XTS over the most that the processor's AES instructions can do.

use std::hint::black_box;

use cryptline_cipher::ceiling::{Share, Width};
use cryptline_cipher::{Backend, SectorCipher};

use super::{Figure, Report};
use crate::Error;
use crate::load::buffer;

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

/// Adds the figures of `cipher`, which is AES-256-XTS. None on a processor whose ceiling is not
/// known.
pub fn measure(report: &mut Report, cipher: &SectorCipher) -> Result<(), Error> {
    let Ok(backend) = Backend::selected() else {
        return Ok(());
    };
    let Some(width) = Width::of(backend) else {
        return Ok(());
    };
    for (sector, request, name, goal) in FIGURES {
        if sector != cipher.sector_size() {
            continue;
        }
        let share = share(cipher, width, request)?;
        if share.kept == 0 {
            let warning = format!("{name}: the machine was never quiet enough to measure it");
            report.warnings.push(warning);
            continue;
        }
        let figure = Figure::at_least(name, share.of_ceiling, goal);
        report.figures.push(if backend == Backend::Avx512 {
            figure
        } else {
            figure.without_goal("the goal is for the AVX-512 kernels")
        });
    }
    Ok(())
}

fn share(cipher: &SectorCipher, width: Width, request: u32) -> Result<Share, Error> {
    let mut buffer = buffer(request)?;
    let share = width.share(ROUNDS, SAMPLE_BYTES, SAMPLES, || {
        for _ in 0..SAMPLE_BYTES / request {
            cipher.encrypt_in_place(8, black_box(&mut buffer));
        }
    });
    Ok(share)
}

#[cfg(test)]
mod tests {
    use cryptline_cipher::{CipherSpec, SectorOptions};

    use super::*;

    #[test]
    fn each_sector_size_has_its_figures_and_they_are_shares() {
        for sector_size in [512, 4096] {
            let options = SectorOptions {
                sector_size,
                iv_offset: 0,
                iv_large_sectors: false,
            };
            let spec = CipherSpec::parse("aes-xts-plain64").unwrap();
            let key: Vec<u8> = (0..64).collect();
            let cipher = SectorCipher::new(&spec, &key, options).unwrap();
            let mut report = Report::new(1);
            measure(&mut report, &cipher).unwrap();
            let known = Backend::selected().is_ok_and(|backend| Width::of(backend).is_some());
            let made = report.figures.len() + report.warnings.len();
            assert_eq!(made, if known { 2 } else { 0 });
            for figure in &report.figures {
                assert!(figure.name.contains(&format!("_{sector_size}_")));
                let value = figure.value.unwrap();
                assert!(value > 0.0 && value < 1.2, "{value}");
            }
        }
    }
}
