//! What to measure, checked before anything is.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use cryptline::size;
use cryptline_engine::Gate;
use cryptline_engine::dispatch::Mode;

use super::SweepArgs;
use super::medium::Medium;
use crate::Error;
use crate::machine::{available_memory, cores};
use crate::report::{Direction, Pattern, Row, Shape};
use crate::runner::{seconds, unique};
use crate::volume::{Cipher, SECTOR_SIZE, check_size};

/// Largest values that make any sense.
const BLOCK_MAX: u64 = 1 << 30;
const DEPTH_MAX: u32 = 1024;
const STREAMS_MAX: u32 = 256;
const ROUNDS_MAX: u32 = 10_000;
/// More hogs than this for each processor say nothing more.
const HOGS_MAX: usize = 64;

/// A checked [`SweepArgs`]: each value of a list once, in the order given.
pub struct Plan {
    pub blocks: Vec<u32>,
    pub depths: Vec<u32>,
    pub directions: Vec<Direction>,
    pub streams: Vec<u32>,
    pub modes: Vec<Mode>,
    pub ciphers: Vec<Cipher>,
    pub medium: Medium,
    pub helpers: usize,
    pub hogs: u32,
    pub time: Duration,
}

impl Plan {
    /// Checks what was asked for.
    pub fn new(args: &SweepArgs) -> Result<Self, Error> {
        let hogs = args.hog.unwrap_or(cores());
        let hogs_max = cores().saturating_mul(HOGS_MAX);
        if hogs > hogs_max {
            return Err(Error::parameters(format!("--hog {hogs}: give at most {hogs_max}")));
        }
        let count = |most: u32| {
            move |&count: &u32| match count {
                count if count > 0 && count <= most => Ok(count),
                _ => Err(format!("give numbers from 1 to {most}")),
            }
        };
        list("--rounds", &[args.rounds], count(ROUNDS_MAX))?;
        let words = list("--cipher", &args.cipher, |word| Ok(word.clone()))?;
        let ciphers = words.iter().map(|word| Cipher::new(word));
        let plan = Self {
            blocks: list("--block-sizes", &args.block_sizes, block)?,
            depths: list("--depths", &args.depths, count(DEPTH_MAX))?,
            directions: list("--directions", &args.directions, |word| direction(word))?,
            streams: list("--streams", &args.streams, count(STREAMS_MAX))?,
            modes: list("--dispatch", &args.dispatch, |word| Mode::from_str(word))?,
            ciphers: ciphers.collect::<Result<_, _>>()?,
            medium: Medium::parse(&args.medium)?,
            helpers: args.helpers.count()?,
            hogs: u32::try_from(hogs).unwrap_or(u32::MAX),
            time: seconds(args.seconds)?,
        };
        plan.check_size(args.size)?;
        Ok(plan)
    }

    /// A row by each mode for every point, and then for small reads alone and beside hogs.
    pub fn rows(&self, pattern: Pattern) -> Vec<Row> {
        let shape = |direction, streams, depth, block| Shape { direction, pattern, block, depth, streams };
        let mut loads = Vec::new();
        for cipher in &self.ciphers {
            for &direction in &self.directions {
                for &streams in &self.streams {
                    for &depth in &self.depths {
                        let shape = |&block| shape(direction, streams, depth, block);
                        loads.extend(self.blocks.iter().map(shape).map(|shape| (cipher, shape, 0)));
                    }
                }
            }
        }
        if self.hogs > 0 {
            let small = shape(Direction::Read, 1, 1, 4096);
            loads.extend([0, self.hogs].map(|hogs| (&self.ciphers[0], small, hogs)));
        }
        let row = |(cipher, shape, hogs): (&Cipher, Shape, u32), mode: Mode| Row {
            name: format!("{mode}{}", if hogs == 0 { "" } else { ", loaded" }),
            cipher: Some(cipher.word().to_owned()),
            dispatch: Some(mode.to_string()),
            shape,
            hogs,
            ..Row::default()
        };
        let by_modes = |load| self.modes.iter().map(move |&mode| row(load, mode));
        loads.into_iter().flat_map(by_modes).collect()
    }

    /// The volume of each row, all on one medium that is full of data.
    pub fn volumes(&self, args: &SweepArgs, rows: &[Row]) -> Result<Vec<Gate>, Error> {
        let medium = self.medium.open(args.size, self.buffers())?;
        let helpers = args.helpers.pool()?;
        let mut volumes: Vec<Gate> = Vec::new();
        for cipher in &self.ciphers {
            for &mode in &self.modes {
                volumes.push(cipher.over(&medium, mode, &helpers)?);
            }
        }
        // The rows of a cipher come by all modes in turn.
        let cipher_of = |row: &Row| {
            let mut ciphers = self.ciphers.iter();
            ciphers.position(|cipher| row.cipher.as_deref() == Some(cipher.word()))
        };
        let modes = self.modes.len();
        let volume = |(place, row): (usize, &Row)| -> Gate {
            let cipher = cipher_of(row).unwrap_or(0);
            volumes[cipher * modes + place % modes].clone()
        };
        Ok(rows.iter().enumerate().map(volume).collect())
    }

    /// Most memory that requests take at once, in bytes.
    fn buffers(&self) -> u64 {
        let largest = |values: &[u32]| u64::from(values.iter().copied().max().unwrap_or(0));
        let requests = largest(&self.depths).saturating_mul(largest(&self.streams));
        requests.saturating_mul(largest(&self.blocks))
    }

    fn check_size(&self, size: u64) -> Result<(), Error> {
        let largest = u64::from(self.blocks.iter().copied().max().unwrap_or(0));
        check_size(size)?;
        if largest > size {
            return Err(Error::parameters(format!(
                "--size {}: a request of {} does not fit; give a larger --size or smaller --block-sizes",
                size::human(size),
                size::human(largest)
            )));
        }
        match available_memory() {
            Some(available) if self.buffers() > available => Err(Error::parameters(format!(
                "the buffers of all requests take {}, and {} of memory are free; give smaller --block-sizes, --depths or --streams",
                size::human(self.buffers()),
                size::human(available)
            ))),
            _ => Ok(()),
        }
    }
}

/// What the values of a list mean, each once.
fn list<G: Display, T: PartialEq>(
    option: &str,
    given: &[G],
    parse: impl Fn(&G) -> Result<T, String>,
) -> Result<Vec<T>, Error> {
    let refused = |value, why| Error::parameters(format!("{option} {value}: {why}"));
    let parsed = given.iter().map(|value| parse(value).map_err(|why| refused(value, why)));
    Ok(unique(parsed.collect::<Result<Vec<_>, _>>()?))
}

fn block(&bytes: &u64) -> Result<u32, String> {
    let fits = bytes > 0 && bytes <= BLOCK_MAX && bytes.is_multiple_of(u64::from(SECTOR_SIZE));
    let block = u32::try_from(bytes).ok().filter(|_| fits);
    block.ok_or_else(|| {
        format!("give multiples of {SECTOR_SIZE} bytes, and not 0, up to {}, such as 4k,1M", size::human(BLOCK_MAX))
    })
}

fn direction(word: &str) -> Result<Direction, String> {
    match word {
        "read" => Ok(Direction::Read),
        "write" => Ok(Direction::Write),
        _ => Err("there is no such direction; read and write are".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sweep: SweepArgs,
    }

    fn plan(options: &[&str]) -> Result<Plan, Error> {
        let line = Line::try_parse_from(["sweep"].iter().chain(options));
        Plan::new(&line.expect("a command line").sweep)
    }

    #[test]
    fn without_options_every_point_of_the_goal_is_measured() {
        let plan = plan(&[]).expect("a plan");
        assert_eq!(plan.rows(Pattern::Random).len(), (7 * 3 * 2 * 2 + 2) * 3);
        assert_eq!(plan.modes, [Mode::Inline, Mode::Queue, Mode::Auto]);
        assert_eq!(plan.blocks.first(), Some(&4096));
        assert_eq!(plan.blocks.last(), Some(&(4 << 20)));
    }

    #[test]
    fn each_axis_can_be_narrowed() {
        let options = [
            "--block-sizes=4k,64k,4k",
            "--depths=1",
            "--directions=write",
            "--streams=2",
            "--dispatch=auto",
            "--hog=0",
        ];
        let rows = plan(&options).expect("a plan").rows(Pattern::Random);
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!(row.name, "auto");
            assert_eq!((row.shape.direction, row.shape.streams), (Direction::Write, 2));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let helpers = format!("--helpers={}", cores() + 1);
        for (option, text) in [
            ("--dispatch=outline", "--dispatch outline"),
            ("--directions=sideways", "--directions sideways"),
            ("--block-sizes=0", "--block-sizes 0"),
            ("--block-sizes=5000", "--block-sizes 5000"),
            ("--depths=0", "--depths 0"),
            ("--streams=0", "--streams 0"),
            ("--streams=1000", "--streams 1000"),
            ("--rounds=0", "--rounds 0"),
            ("--seconds=0", "--seconds 0"),
            ("--seconds=NaN", "--seconds NaN"),
            ("--size=0", "--size 0"),
            ("--size=1M", "does not fit"),
            ("--cipher=rot13", "--cipher rot13"),
            ("--hog=100000", "--hog 100000"),
            ("--medium=delay:soon", "--medium delay:soon"),
            (helpers.as_str(), "--helpers"),
        ] {
            let error = plan(&[option]).map(drop).expect_err(option);
            assert_eq!(error.kind(), cryptline::ErrorKind::Parameters, "{option}");
            assert!(error.to_string().contains(text), "{option}: {error}");
        }
        let greedy = ["--block-sizes=1G", "--depths=1024", "--streams=256", "--size=1G"];
        let error = plan(&greedy).map(drop).expect_err("too much memory");
        assert!(error.to_string().contains("memory are free"), "{error}");
    }
}
