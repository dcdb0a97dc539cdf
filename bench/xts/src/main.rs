//! AES-256-XTS of cryptline beside that of AWS-LC and OpenSSL, encrypting, on one core.
//!
//! `cargo run --release --manifest-path bench/xts/Cargo.toml -- [--json FILE] [--csv FILE]`
//!
//! ```text
//!   ours  AWS-LC  OpenSSL  ours  AWS-LC  OpenSSL ..     about 20 µs each
//!     └─────┴────────┘
//!     one ratio to each; the table has the medians
//! ```
//!
//! All have their key schedules ready and work on the same buffer in place, in turns, so that a
//! change of the clock or a busy neighbour affects all alike. Ours takes a whole request in one call;
//! theirs take one IV at a time, so they get a call for each sector. Before anything is measured,
//! their bytes are compared.

#![deny(unsafe_code)]

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use cryptline_cipher::ceiling::median;
use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions};
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;

#[allow(unsafe_code)]
mod aws_lc;

use aws_lc::AwsLc;

/// Length of a request and of a cipher sector, in bytes, and how often as fast as AWS-LC we
/// should be.
const SHAPES: [(usize, u32, f64); 4] = [
    (4096, 512, 1.8),
    (4096, 4096, 1.0),
    (65536, 512, 1.9),
    (65536, 4096, 1.1),
];
const SAMPLES: usize = 1001;
/// Bytes that one sample works on.
const SAMPLE_BYTES: usize = 256 << 10;
/// Place of the request on the target, in 512-byte sectors.
const SECTOR: u64 = 8;

/// The three, with the same key.
struct Ciphers {
    ours: SectorCipher,
    aws_lc: AwsLc,
    openssl: CipherCtx,
    sector: u32,
}

/// Aligned as requests of direct I/O are.
#[repr(align(4096))]
struct Pages([u8; 65536]);

/// GB/s (10^9 bytes) of ours, AWS-LC and OpenSSL, and our ratio to the others: medians.
struct Measured {
    rates: [f64; 3],
    over: [f64; 2],
}

fn main() -> Result<(), Box<dyn Error>> {
    let (json, csv) = files()?;
    let mut pages = Box::new(Pages([0; 65536]));
    let mut table = String::from(
        "bytes,sector,backend,ours_gbps,awslc_gbps,openssl_gbps,over_awslc,over_openssl\n",
    );
    let mut figures = Vec::new();
    for (len, sector, goal) in SHAPES {
        let mut ciphers = Ciphers::new(sector)?;
        let data = &mut pages.0[..len];
        ciphers.compare(data)?;
        let Measured { rates, over } = measure(&mut ciphers, data)?;
        writeln!(
            table,
            "{len},{sector},{},{:.3},{:.3},{:.3},{:.3},{:.3}",
            ciphers.ours.backend_name().replace(',', " "),
            rates[0],
            rates[1],
            rates[2],
            over[0],
            over[1]
        )?;
        let kib = len / 1024;
        let name = |peer| format!("xts256_{sector}_{kib}k_over_{peer}");
        figures.push(figure(&name("awslc"), over[0], Some(goal)));
        figures.push(figure(&name("openssl"), over[1], None));
    }
    let figures = format!("{{\n  \"figures\": [\n{}\n  ]\n}}\n", figures.join(",\n"));
    println!(
        "OpenSSL: {}\n\n{table}\n{figures}",
        openssl::version::version()
    );
    if let Some(file) = json {
        std::fs::write(file, figures)?;
    }
    if let Some(file) = csv {
        std::fs::write(file, table)?;
    }
    Ok(())
}

fn files() -> Result<(Option<String>, Option<String>), Box<dyn Error>> {
    let (mut json, mut csv) = (None, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => json = Some(words.next().ok_or("--json needs a file")?),
            "--csv" => csv = Some(words.next().ok_or("--csv needs a file")?),
            other => return Err(format!("{other}: give --json FILE or --csv FILE").into()),
        }
    }
    Ok((json, csv))
}

/// In the form of `cryptline benchmark --json`.
fn figure(name: &str, value: f64, goal: Option<f64>) -> String {
    let (goal, met) = match goal {
        Some(goal) => (goal.to_string(), (value >= goal).to_string()),
        None => ("null".to_owned(), "null".to_owned()),
    };
    format!(
        "    {{\"name\": \"{name}\", \"value\": {value:.4}, \"unit\": \"ratio\", \"goal\": {goal}, \"met\": {met}}}"
    )
}

impl Ciphers {
    fn new(sector: u32) -> Result<Ciphers, Box<dyn Error>> {
        let mut key = [0; 64];
        for (byte, at) in key.iter_mut().zip(0..) {
            *byte = at;
        }
        let options = SectorOptions {
            sector_size: sector,
            iv_offset: 0,
            iv_large_sectors: false,
        };
        let spec = CipherSpec::parse("aes-xts-plain64")?;
        let mut openssl = CipherCtx::new()?;
        openssl.encrypt_init(Some(Cipher::aes_256_xts()), Some(&key), None)?;
        Ok(Ciphers {
            ours: SectorCipher::new(&spec, &key, options)?,
            aws_lc: AwsLc::new(&key),
            openssl,
            sector,
        })
    }

    /// One request by the cipher of this number.
    fn encrypt(&mut self, which: usize, data: &mut [u8]) {
        if which == 0 {
            return self.ours.encrypt_in_place(SECTOR, data);
        }
        let bytes = usize::try_from(self.sector).expect("at most 4096");
        let mut number = SECTOR;
        for sector in data.chunks_mut(bytes) {
            let iv = u128::from(number).to_le_bytes();
            if which == 1 {
                self.aws_lc.encrypt(&iv, sector);
            } else {
                let begun = self.openssl.encrypt_init(None, None, Some(&iv));
                let done = self.openssl.cipher_update_inplace(sector, bytes);
                assert!(begun.is_ok() && done.is_ok(), "OpenSSL encrypts");
            }
            number += u64::from(self.sector / 512);
        }
    }

    /// Refuses to measure ciphers that are not the same.
    fn compare(&mut self, data: &mut [u8]) -> Result<(), Box<dyn Error>> {
        for (at, byte) in data.iter_mut().enumerate() {
            *byte = 0x5a ^ at.to_le_bytes()[0];
        }
        let clear = data.to_vec();
        self.encrypt(0, data);
        let ours = data.to_vec();
        for which in [1, 2] {
            data.copy_from_slice(&clear);
            self.encrypt(which, data);
            if data != ours {
                return Err("the ciphers do not give the same bytes".into());
            }
        }
        Ok(())
    }
}

fn measure(ciphers: &mut Ciphers, data: &mut [u8]) -> Result<Measured, Box<dyn Error>> {
    let calls = SAMPLE_BYTES / data.len();
    let bytes = f64::from(u32::try_from(SAMPLE_BYTES)?);
    let mut samples: [Vec<f64>; 3] = Default::default();
    for _ in 0..SAMPLES {
        for (which, samples) in samples.iter_mut().enumerate() {
            let start = Instant::now();
            for _ in 0..calls {
                ciphers.encrypt(which, black_box(&mut *data));
            }
            samples.push(bytes / start.elapsed().as_secs_f64() / 1e9);
        }
    }
    let over = |peer: usize| {
        let ratios = samples[0].iter().zip(&samples[peer]);
        middle(
            &ratios
                .map(|(ours, theirs)| ours / theirs)
                .collect::<Vec<_>>(),
        )
    };
    let over = [over(1), over(2)];
    Ok(Measured {
        rates: samples.map(|samples| middle(&samples)),
        over,
    })
}

/// Not a number of none.
fn middle(values: &[f64]) -> f64 {
    median(values).unwrap_or(f64::NAN)
}
