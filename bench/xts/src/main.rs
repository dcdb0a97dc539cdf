//! AES-256-XTS of cryptline beside that of AWS-LC, OpenSSL and Linux, encrypting, on one core.
//!
//! `cargo run --release --manifest-path bench/xts/Cargo.toml -- [--json FILE] [--csv FILE]`
//!
//! ```text
//!   ours  AWS-LC  OpenSSL  Linux  ours  AWS-LC ..     about 20 µs each
//!     └─────┴────────┴───────┘
//!     one ratio to each; the table has the medians
//! ```
//!
//! Linux's is there with Debian's `linux-source` package (see `build.rs`), in its two widest forms.
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
#[cfg(linux_xts)]
#[allow(unsafe_code)]
mod linux;

use aws_lc::AwsLc;

/// Length of a request and of a cipher sector, in bytes, and how often as fast as AWS-LC we
/// should be.
const SHAPES: [(usize, u32, Option<f64>); 5] = [
    (512, 512, None),
    (4096, 512, Some(1.8)),
    (4096, 4096, Some(1.0)),
    (65536, 512, Some(1.9)),
    (65536, 4096, Some(1.1)),
];
/// How often as fast as the better of Linux's we should be with cipher sectors of a size, in the
/// worst request of several blocks of 512 bytes.
const OVER_LINUX: [(u32, f64); 2] = [(512, 1.5), (4096, 1.05)];
/// Ours, and the others as the table calls them.
const NAMES: [&str; PEERS + 1] = ["ours", "awslc", "openssl", "linux_avx512", "linux_avx2"];
const PEERS: usize = 4;
const SAMPLES: usize = 1001;
/// Bytes that one sample works on.
const SAMPLE_BYTES: usize = 256 << 10;
/// Place of the request on the target, in 512-byte sectors.
const SECTOR: u64 = 8;

/// All of them with the same key.
struct Ciphers {
    ours: SectorCipher,
    aws_lc: AwsLc,
    openssl: CipherCtx,
    #[cfg(linux_xts)]
    linux: [Option<linux::Linux>; 2],
    sector: u32,
}

/// Aligned as requests of direct I/O are.
#[repr(align(4096))]
struct Pages([u8; 65536]);

/// GB/s (10^9 bytes) in the order of [`NAMES`] and our ratio to each: medians, not numbers for who
/// is not there.
struct Measured {
    rates: [f64; PEERS + 1],
    over: [f64; PEERS + 1],
}

fn main() -> Result<(), Box<dyn Error>> {
    let (json, csv) = files()?;
    let mut pages = Box::new(Pages([0; 65536]));
    let rates = NAMES.map(|name| format!("{name}_gbps")).join(",");
    let over: Vec<_> = NAMES[1..].iter().map(|name| format!("over_{name}")).collect();
    let mut table = format!("bytes,sector,backend,{rates},{}\n", over.join(","));
    let mut figures = Vec::new();
    let mut worst = OVER_LINUX.map(|(sector, goal)| (sector, goal, f64::NAN));
    for (len, sector, goal) in SHAPES {
        let mut ciphers = Ciphers::new(sector)?;
        let data = &mut pages.0[..len];
        ciphers.compare(data)?;
        let Measured { rates, over } = measure(&mut ciphers, data)?;
        let backend = ciphers.ours.backend_name().replace(',', " ");
        write!(table, "{len},{sector},{backend}")?;
        for number in rates.iter().chain(&over[1..]) {
            write!(table, ",{number:.3}")?;
        }
        table.push('\n');
        if len > 512 {
            let kib = len / 1024;
            let name = |peer| format!("xts256_{sector}_{kib}k_over_{peer}");
            figures.push(figure(&name("awslc"), over[1], goal));
            figures.push(figure(&name("openssl"), over[2], None));
            for (of, _, worst) in &mut worst {
                if *of == sector {
                    *worst = worst.min(over[3]).min(over[4]);
                }
            }
        }
    }
    for (sector, goal, ratio) in worst {
        if !ratio.is_nan() {
            let name = format!("xts_over_linux_{sector}");
            figures.push(figure(&name, ratio, Some(goal)));
        }
    }
    let figures = format!("{{\n  \"figures\": [\n{}\n  ]\n}}\n", figures.join(",\n"));
    println!("OpenSSL: {}\n\n{table}\n{figures}", openssl::version::version());
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
            other => return Err(format!("{other}: use --json FILE or --csv FILE").into()),
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
        let options = SectorOptions { sector_size: sector, iv_offset: 0, iv_large_sectors: false };
        let spec = CipherSpec::parse("aes-xts-plain64")?;
        let mut openssl = CipherCtx::new()?;
        openssl.encrypt_init(Some(Cipher::aes_256_xts()), Some(&key), None)?;
        Ok(Ciphers {
            ours: SectorCipher::new(&spec, &key, options)?,
            aws_lc: AwsLc::new(&key),
            openssl,
            #[cfg(linux_xts)]
            linux: [true, false].map(|wide| linux::Linux::new(&key, wide)),
            sector,
        })
    }

    fn is_here(&self, which: usize) -> bool {
        #[cfg(linux_xts)]
        if which >= 3 {
            return self.linux[which - 3].is_some();
        }
        which < 3
    }

    /// One request by the cipher of this number, which is here.
    fn encrypt(&mut self, which: usize, data: &mut [u8]) {
        if which == 0 {
            return self.ours.encrypt_in_place(SECTOR, data);
        }
        let bytes = usize::try_from(self.sector).expect("at most 4096");
        let mut number = SECTOR;
        for sector in data.chunks_mut(bytes) {
            let iv = u128::from(number).to_le_bytes();
            match which {
                1 => self.aws_lc.encrypt(&iv, sector),
                2 => {
                    let begun = self.openssl.encrypt_init(None, None, Some(&iv));
                    let done = self.openssl.cipher_update_inplace(sector, bytes);
                    assert!(begun.is_ok() && done.is_ok(), "OpenSSL encrypts");
                }
                #[cfg(linux_xts)]
                of_linux => {
                    let linux = self.linux[of_linux - 3].as_ref();
                    linux.expect("asked for").encrypt(&iv, sector);
                }
                #[cfg(not(linux_xts))]
                _ => unreachable!("not here"),
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
        for which in (1..NAMES.len()).filter(|&which| self.is_here(which)).collect::<Vec<_>>() {
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
    let mut samples: [Vec<f64>; PEERS + 1] = Default::default();
    for _ in 0..SAMPLES {
        for (which, samples) in samples.iter_mut().enumerate() {
            if !ciphers.is_here(which) {
                continue;
            }
            let start = Instant::now();
            for _ in 0..calls {
                ciphers.encrypt(which, black_box(&mut *data));
            }
            samples.push(bytes / start.elapsed().as_secs_f64() / 1e9);
        }
    }
    let over = |peer: usize| {
        let ratios = samples[0].iter().zip(&samples[peer]);
        middle(&ratios.map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
    };
    let over = [0, 1, 2, 3, 4].map(over);
    Ok(Measured { rates: samples.map(|samples| middle(&samples)), over })
}

/// Not a number of none.
fn middle(values: &[f64]) -> f64 {
    median(values).unwrap_or(f64::NAN)
}
