//! How near the XTS kernels come to what the CPU's AES instructions can do.
//!
//! `cargo bench -p cryptline-cipher [-- [--json FILE] [--csv FILE] [FILTER]]`
//!
//! ```text
//!   ceiling  work  ceiling  work  ceiling ..      about 30 µs each
//!      └──────┬──────┘
//!   a sample: work / mean of both ceilings; thrown away if the two differ
//! ```
//!
//! A virtual machine's clock and neighbours change from one moment to the next, so a speed alone
//! says little; its ratio to the ceiling around it does. The table has medians of what is left.

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use cryptline_cipher::{Backend, CipherSpec, SectorCipher, SectorOptions};

#[cfg_attr(target_arch = "x86_64", path = "xts/ceiling.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "xts/no_ceiling.rs")]
mod ceiling;

use ceiling::Width;

const SAMPLES: usize = 400;
/// Bytes that one sample works on, about.
const SAMPLE_BYTES: usize = 256 << 10;
/// Ceilings before and after a sample that differ by more were disturbed. So was a sample whose
/// ceiling is this far from the median of all.
const DISTURBED: f64 = 0.02;

/// One row.
#[derive(Clone, Copy)]
struct Shape {
    backend: Backend,
    key_bytes: usize,
    len: usize,
    sector: u32,
    decrypt: bool,
    in_place: bool,
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

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

struct Measured {
    /// GB/s, 10^9 bytes.
    rate: f64,
    /// Of the bare rounds at the back end's own width.
    of_ceiling: f64,
    kept: usize,
}

/// A measurement with a name, and what it should be.
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    goal: Option<f64>,
    /// Whether less is better.
    at_most: bool,
}

struct Arguments {
    json: Option<String>,
    csv: Option<String>,
    filter: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse()?;
    let Some(widest) = Width::widest() else {
        println!("no ceiling is known for this CPU, so there is nothing to measure against");
        return Ok(());
    };
    let mut csv =
        String::from("backend,key_bits,bytes,sector,direction,place,gbps,of_ceiling,kept\n");
    let mut figures = Vec::new();
    println!(
        "{:>9} {:>4} {:>6} {:>6} {:>8} {:>6} {:>7} {:>11} {:>5}",
        "back end", "key", "bytes", "sector", "", "place", "GB/s", "of ceiling", "kept"
    );
    for shape in shapes() {
        let row = shape.csv();
        if !row.contains(&arguments.filter) {
            continue;
        }
        let measured = measure(shape, shape.width(widest))?;
        println!("{}", shape.row(&measured));
        let _infallible = writeln!(
            csv,
            "{row},{:.3},{:.4},{}",
            measured.rate, measured.of_ceiling, measured.kept
        );
        figures.extend(shape.figure(&measured));
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
        let mut parsed = Arguments {
            json: None,
            csv: None,
            filter: String::new(),
        };
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
    let sizes = [
        (512, 512),
        (4096, 512),
        (4096, 4096),
        (65536, 512),
        (65536, 4096),
    ];
    let mut shapes = Vec::new();
    for key_bytes in [64, 32] {
        for backend in Backend::available() {
            for (len, sector) in sizes {
                for (decrypt, in_place) in
                    [(false, true), (false, false), (true, true), (true, false)]
                {
                    let shape = Shape {
                        backend,
                        key_bytes,
                        len,
                        sector,
                        decrypt,
                        in_place,
                    };
                    if key_bytes == 64 || (len == 65536 && in_place) {
                        shapes.push(shape);
                    }
                }
            }
        }
    }
    shapes
}

impl Shape {
    fn rounds(self) -> f64 {
        if self.key_bytes == 64 { 14.0 } else { 10.0 }
    }

    /// What the ceiling is measured with: AES-NI's own, since it has half of the others'.
    fn width(self, widest: Width) -> Width {
        match self.backend {
            Backend::AesNi => Width::Xmm,
            _ => widest,
        }
    }

    fn csv(self) -> String {
        let Shape {
            backend,
            len,
            sector,
            ..
        } = self;
        let (direction, place) = self.words();
        format!(
            "{backend},{},{len},{sector},{direction},{place}",
            self.key_bytes * 4
        )
    }

    fn words(self) -> (&'static str, &'static str) {
        (
            if self.decrypt { "decrypt" } else { "encrypt" },
            if self.in_place { "in" } else { "out" },
        )
    }

    fn row(self, measured: &Measured) -> String {
        let (direction, place) = self.words();
        format!(
            "{:>9} {:>4} {:>6} {:>6} {direction:>8} {place:>6} {:>7.2} {:>11.3} {:>5}",
            self.backend.as_str(),
            self.key_bytes * 4,
            self.len,
            self.sector,
            measured.rate,
            measured.of_ceiling,
            measured.kept
        )
    }

    /// The goals are for AES-256 encryption.
    fn figure(self, measured: &Measured) -> Option<Figure> {
        if self.key_bytes != 64 || self.decrypt || !self.in_place {
            return None;
        }
        if self.len == 512 {
            return self.single_call(measured);
        }
        let goals = match self.backend {
            Backend::Avx512 => Some([0.90, 0.90, 0.95]),
            Backend::Avx2 => Some([0.75, 0.80, 0.80]),
            Backend::AesNi => Some([0.80, 0.85, 0.85]),
            Backend::Portable => None,
        };
        let column = match (self.len, self.sector) {
            (4096, 512) => 0,
            (4096, _) => 1,
            _ => 2,
        };
        let suffix = match self.backend {
            Backend::Avx512 => String::new(),
            other => format!("_{other}"),
        };
        Some(Figure {
            name: format!(
                "xts256_{}_{}k_of_ceiling{suffix}",
                self.sector,
                self.len / 1024
            ),
            value: measured.of_ceiling,
            unit: "ratio",
            goal: goals.map(|goals| goals[column]),
            at_most: false,
        })
    }
}

impl Shape {
    /// What a call for one sector of 512 bytes takes: the goal is 1.6 times its 32 blocks at the
    /// ceiling, plus one IV, which is 14 rounds one after another.
    fn single_call(self, measured: &Measured) -> Option<Figure> {
        let blocks = 512.0 / (measured.rate / measured.of_ceiling);
        let latency = median((0..51).map(|_| ceiling::round_latency()).collect());
        let call = 512.0 / measured.rate;
        Some(Figure {
            name: format!("xts256_512_single_over_ceiling_{}", self.backend),
            value: (call - latency * self.rounds()) / blocks,
            unit: "ratio",
            goal: (self.backend == Backend::Avx512).then_some(1.6),
            at_most: true,
        })
    }
}

fn measure(shape: Shape, width: Width) -> Result<Measured, Box<dyn Error>> {
    let options = SectorOptions {
        sector_size: shape.sector,
        iv_offset: 0,
        iv_large_sectors: false,
    };
    let key: Vec<u8> = (0..=255).take(shape.key_bytes).collect();
    let spec = CipherSpec::parse("aes-xts-plain64")?;
    let cipher = SectorCipher::with_backend(&spec, &key, options, shape.backend)?;
    let (source, mut destination) = (Pages::new(shape.len), Pages::new(shape.len));
    let mut work = || {
        let (source, destination) = (
            black_box(source.bytes()),
            black_box(destination.bytes_mut()),
        );
        match (shape.decrypt, shape.in_place) {
            (false, true) => cipher.encrypt_in_place(8, destination),
            (false, false) => cipher.encrypt(8, source, destination),
            (true, true) => cipher.decrypt_in_place(8, destination),
            (true, false) => cipher.decrypt(8, source, destination),
        }
    };
    let calls = SAMPLE_BYTES / shape.len;
    let bytes = f64::from(u32::try_from(calls * shape.len)?);
    Ok(sample(width, shape.rounds(), || {
        let start = Instant::now();
        for _ in 0..calls {
            work();
        }
        bytes / start.elapsed().as_secs_f64()
    }))
}

/// Medians of `work`'s rate, with the ceiling before and after each sample.
fn sample(width: Width, rounds: f64, mut work: impl FnMut() -> f64) -> Measured {
    let mut samples = Vec::with_capacity(SAMPLES);
    work();
    let mut before = width.round_rate() / rounds;
    for _ in 0..SAMPLES {
        let rate = work();
        let after = width.round_rate() / rounds;
        if (before / after - 1.0).abs() < DISTURBED {
            samples.push((f64::midpoint(before, after), rate));
        }
        before = after;
    }
    let usual = median(samples.iter().map(|(ceiling, _)| *ceiling).collect());
    samples.retain(|(ceiling, _)| (ceiling / usual - 1.0).abs() < DISTURBED);
    Measured {
        rate: median(samples.iter().map(|(_, rate)| *rate).collect()) / 1e9,
        of_ceiling: median(
            samples
                .iter()
                .map(|(ceiling, rate)| rate / ceiling)
                .collect(),
        ),
        kept: samples.len(),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print_figures(figures: &[Figure]) {
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
        println!(
            "{:<42} {:>7.3} {:<6} {goal}",
            figure.name, figure.value, figure.unit
        );
    }
}

impl Figure {
    fn met(&self) -> bool {
        self.goal.is_none_or(|goal| match self.at_most {
            true => self.value <= goal,
            false => self.value >= goal,
        })
    }
}

fn json(figures: &[Figure]) -> String {
    let lines: Vec<String> = figures
        .iter()
        .map(|figure| {
            let goal = figure.goal.map_or("null".to_owned(), |goal| goal.to_string());
            format!(
                "    {{\"name\": \"{}\", \"value\": {:.4}, \"unit\": \"{}\", \"goal\": {goal}, \"met\": {}}}",
                figure.name, figure.value, figure.unit, figure.met()
            )
        })
        .collect();
    format!("{{\n  \"figures\": [\n{}\n  ]\n}}\n", lines.join(",\n"))
}
