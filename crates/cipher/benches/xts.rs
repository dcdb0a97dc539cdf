//! How near the XTS kernels come to what the CPU's AES instructions can do.
//!
//! `cargo bench -p cryptline-cipher [-- [--json FILE] [--csv FILE] [FILTER]]`
//!
//! Each figure is a share of the ceiling around it: `cryptline_cipher::ceiling`.

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;

use cryptline_cipher::ceiling::{AesWidth, CeilingShare};
use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions, XtsBackend};

const SAMPLES: usize = 400;
/// Bytes that one sample works on, about.
const SAMPLE_BYTES: usize = 256 << 10;
/// One row.
#[derive(Clone, Copy)]
struct Shape {
    backend: XtsBackend,
    key_bytes: usize,
    len: usize,
    sector: u32,
    decrypt: bool,
}

/// Memory as requests have it, which direct I/O asks to be aligned: a request that is not pays for
/// each vector that crosses a cache line.
struct Pages {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Pages {
    fn new(len: usize) -> Pages {
        let memory = vec![0x5a; len + 4096];
        let start = memory.as_ptr().align_offset(4096);
        Pages { memory, start, len }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

/// A measurement with a name, and what it should be.
struct XtsFigure {
    name: String,
    value: f64,
    unit: &'static str,
    goal: Option<f64>,
    /// Set if less is better.
    at_most: bool,
}

struct Arguments {
    json: Option<String>,
    csv: Option<String>,
    filter: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse()?;
    if AesWidth::of(XtsBackend::Portable).is_none() {
        println!("no ceiling is known for this CPU, so there is nothing to measure against");
        return Ok(());
    }
    let mut csv = String::from("backend,key_bits,bytes,sector,direction,gbps,of_ceiling,kept\n");
    let mut figures = Vec::new();
    println!(
        "{:>9} {:>4} {:>6} {:>6} {:>8} {:>7} {:>11} {:>5}",
        "back end", "key", "bytes", "sector", "", "GB/s", "of ceiling", "kept"
    );
    for shape in shapes() {
        let row = shape.csv();
        if !row.contains(&arguments.filter) {
            continue;
        }
        let Some(width) = AesWidth::of(shape.backend) else {
            continue;
        };
        let measured = measure(shape, width)?;
        println!("{}", shape.row(&measured));
        let _infallible =
            writeln!(csv, "{row},{:.3},{:.4},{}", measured.rate / 1e9, measured.of_ceiling, measured.kept);
        figures.extend(shape.figure(&measured, width));
    }
    print_figures(&figures);
    if let Some(file) = arguments.csv {
        std::fs::write(file, csv)?;
    }
    if let Some(file) = arguments.json {
        std::fs::write(file, json(&figures))?;
    }
    Ok(())
}

impl Arguments {
    fn parse() -> Result<Arguments, Box<dyn Error>> {
        let mut parsed = Arguments { json: None, csv: None, filter: String::new() };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--json" => parsed.json = Some(words.next().ok_or("--json needs a file")?),
                "--csv" => parsed.csv = Some(words.next().ok_or("--csv needs a file")?),
                // What `cargo bench` passes on.
                "--bench" => {}
                flag if flag.starts_with('-') => return Err(format!("unknown flag {flag}").into()),
                _ => parsed.filter = word,
            }
        }
        Ok(parsed)
    }
}

/// AES-256 in every shape, AES-128 where it is limited by nothing else.
fn shapes() -> Vec<Shape> {
    let sizes = [(512, 512), (4096, 512), (4096, 4096), (65536, 512), (65536, 4096)];
    let mut shapes = Vec::new();
    for key_bytes in [64, 32] {
        for backend in XtsBackend::available() {
            for (len, sector) in sizes {
                for decrypt in [false, true] {
                    let shape = Shape { backend, key_bytes, len, sector, decrypt };
                    if key_bytes == 64 || len == 65536 {
                        shapes.push(shape);
                    }
                }
            }
        }
    }
    shapes
}

impl Shape {
    fn rounds(self) -> u32 {
        if self.key_bytes == 64 { 14 } else { 10 }
    }

    fn csv(self) -> String {
        let Shape { backend, len, sector, .. } = self;
        let direction = self.direction();
        format!("{backend},{},{len},{sector},{direction}", self.key_bytes * 4)
    }

    fn direction(self) -> &'static str {
        if self.decrypt { "decrypt" } else { "encrypt" }
    }

    fn row(self, measured: &CeilingShare) -> String {
        let direction = self.direction();
        format!(
            "{:>9} {:>4} {:>6} {:>6} {direction:>8} {:>7.2} {:>11.3} {:>5}",
            self.backend.as_str(),
            self.key_bytes * 4,
            self.len,
            self.sector,
            measured.rate / 1e9,
            measured.of_ceiling,
            measured.kept
        )
    }

    /// The goals are for AES-256 encryption.
    fn figure(self, measured: &CeilingShare, width: AesWidth) -> Option<XtsFigure> {
        if self.key_bytes != 64 || self.decrypt {
            return None;
        }
        if self.len == 512 {
            return self.single_call(measured, width);
        }
        let goals = match self.backend {
            XtsBackend::Avx512 => Some([0.90, 0.90, 0.95]),
            XtsBackend::Avx2 => Some([0.75, 0.80, 0.80]),
            XtsBackend::AesNi => Some([0.80, 0.85, 0.85]),
            XtsBackend::Armv8 | XtsBackend::Portable => None,
        };
        let column = match (self.len, self.sector) {
            (4096, 512) => 0,
            (4096, _) => 1,
            _ => 2,
        };
        let suffix = match self.backend {
            XtsBackend::Avx512 => String::new(),
            other => format!("_{other}"),
        };
        Some(XtsFigure {
            name: format!("xts256_{}_{}k_of_ceiling{suffix}", self.sector, self.len / 1024),
            value: measured.of_ceiling,
            unit: "ratio",
            goal: goals.map(|goals| goals[column]),
            at_most: false,
        })
    }
}

impl Shape {
    /// Cost of a call for one sector of 512 bytes: the goal is 1.6 times its 32 blocks at the ceiling, plus one IV,
    /// which is 14 rounds one after another.
    fn single_call(self, measured: &CeilingShare, width: AesWidth) -> Option<XtsFigure> {
        let call = 512e9 / measured.rate;
        let blocks = call * measured.of_ceiling;
        let iv = width.round_latency() * f64::from(self.rounds());
        Some(XtsFigure {
            name: format!("xts256_512_single_over_ceiling_{}", self.backend),
            value: (call - iv) / blocks,
            unit: "ratio",
            goal: (self.backend == XtsBackend::Avx512).then_some(1.6),
            at_most: true,
        })
    }
}

fn measure(shape: Shape, width: AesWidth) -> Result<CeilingShare, Box<dyn Error>> {
    let options = SectorOptions { sector_size: shape.sector, iv_offset: 0, iv_large_sectors: false };
    let key: Vec<u8> = (0..=255).take(shape.key_bytes).collect();
    let spec = CipherSpec::parse("aes-xts-plain64")?;
    let cipher = SectorCipher::with_backend(&spec, &key, options, shape.backend)?;
    let mut pages = Pages::new(shape.len);
    let mut work = || {
        let data = black_box(pages.bytes_mut());
        if shape.decrypt {
            cipher.decrypt_in_place(8, data);
        } else {
            cipher.encrypt_in_place(8, data);
        }
    };
    let calls = SAMPLE_BYTES / shape.len;
    let bytes = u32::try_from(calls * shape.len)?;
    Ok(width.share(shape.rounds(), bytes, SAMPLES, || {
        for _ in 0..calls {
            work();
        }
    }))
}

fn print_figures(figures: &[XtsFigure]) {
    println!();
    for figure in figures {
        let goal = match figure.goal {
            Some(goal) => format!(
                "goal {} {goal:.2}: {}",
                if figure.at_most { "<=" } else { ">=" },
                if figure.met() { "met" } else { "NOT met" }
            ),
            None => "no goal".to_owned(),
        };
        println!("{:<42} {:>7.3} {:<6} {goal}", figure.name, figure.value, figure.unit);
    }
}

impl XtsFigure {
    fn met(&self) -> bool {
        self.goal.is_none_or(|goal| if self.at_most { self.value <= goal } else { self.value >= goal })
    }
}

fn json(figures: &[XtsFigure]) -> String {
    let lines: Vec<String> = figures
        .iter()
        .map(|figure| {
            let goal = figure.goal.map_or("null".to_owned(), |goal| goal.to_string());
            format!(
                "    {{\"name\": \"{}\", \"value\": {:.4}, \"unit\": \"{}\", \"goal\": {goal}, \"met\": {}}}",
                figure.name,
                figure.value,
                figure.unit,
                figure.met()
            )
        })
        .collect();
    format!("{{\n  \"figures\": [\n{}\n  ]\n}}\n", lines.join(",\n"))
}
