//! The loads, and who makes them.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::Value;

use crate::load::Job;
use crate::nbd::Export;
use crate::report::{Direction, Latency, Pattern, Sample, Shape, word};
use crate::{Error, foreign};

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// Random reads of 4 KiB, 32 in flight
    #[value(name = "4k-randread-qd32")]
    RandRead,
    /// Random writes of 4 KiB, 32 in flight
    #[value(name = "4k-randwrite-qd32")]
    RandWrite,
    /// Reads of 1 MiB in order, 4 in flight
    #[value(name = "1m-read-qd4")]
    Read,
    /// Writes of 1 MiB in order, 4 in flight
    #[value(name = "1m-write-qd4")]
    Write,
    /// Random reads of 4 KiB, one at a time
    #[value(name = "4k-randread-qd1")]
    RandReadOne,
    /// Random reads of 128 KiB, 16 in flight
    #[value(name = "128k-randread-qd16")]
    RandReadMiddle,
}

/// A load generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Generator {
    /// fio with its nbd engine, one connection
    Fio,
    /// The client of this program, one connection
    Lean,
    /// The same, with several connections, each with a thread and requests of its own
    LeanMany,
}

impl Load {
    /// Reads first: they find the images as they were made.
    pub const ALL: [Self; 6] =
        [Self::RandRead, Self::RandReadMiddle, Self::RandReadOne, Self::Read, Self::RandWrite, Self::Write];

    /// Its shape on one connection.
    fn spec(self) -> Shape {
        use {Direction::*, Pattern::*};
        match self {
            Self::RandRead => Shape::new(Read, Random, 4096, 32),
            Self::RandWrite => Shape::new(Write, Random, 4096, 32),
            Self::Read => Shape::new(Read, Sequential, 1 << 20, 4),
            Self::Write => Shape::new(Write, Sequential, 1 << 20, 4),
            Self::RandReadMiddle => Shape::new(Read, Random, 128 << 10, 16),
            Self::RandReadOne => Shape::new(Read, Random, 4096, 1),
        }
    }

    /// For headings.
    pub fn title(self) -> String {
        self.spec().title()
    }

    /// Its shape on each of `streams` connections.
    pub fn shape(self, streams: u32) -> Shape {
        let shape = self.spec();
        Shape { streams, ..shape }
    }
}

impl Generator {
    /// Connections that it makes.
    pub fn streams(self, many: u32) -> u32 {
        match self {
            Self::Fio | Self::Lean => 1,
            Self::LeanMany => many,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&word(self))
    }
}

impl fmt::Display for Generator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&word(self))
    }
}

/// fio's command line for a job, see [`foreign::words`].
const FIO: &str = "--name=load --ioengine=nbd --uri={uri} --rw={pattern}{direction} --bs={block} \
    --iodepth={depth} --thread --time_based --runtime={time}ms --ramp_time={warm-up}ms \
    --lat_percentiles=1 --clat_percentiles=0 --percentile_list=50:90:99:99.9 \
    --output-format=json {cpu} --output={output}";

/// A run as long as this that measures nothing is a failure.
const FIO_LONG: Duration = Duration::from_secs(1);

/// Loads an export by fio, whose JSON goes to `output`. Gives the command too.
pub fn fio(program: &Path, export: &Export<'_>, job: &Job, output: &Path) -> Result<(Sample, String), Error> {
    let failed = |why: &str| Error::device(format!("fio failed: {why}"));
    let mut job = *job;
    loop {
        let words = fio_words(export, &job, output);
        foreign::run(program, &words)?.ok_or_else(|| failed("it is gone"))?;
        let text = std::fs::read_to_string(output).map_err(|error| failed(&error.to_string()))?;
        if let Some(sample) = sample(&text, job.shape.direction) {
            let command = [vec![program.into()], words].concat();
            return Ok((sample, foreign::typed(&command)));
        }
        // On a busy machine all of a short time may pass before a request ends.
        if job.time >= FIO_LONG {
            return Err(failed("its JSON does not say what it measured"));
        }
        job.time *= 4;
    }
}

fn fio_words(export: &Export<'_>, job: &Job, output: &Path) -> Vec<OsString> {
    let shape = job.shape;
    foreign::words(FIO, |name| match name {
        "uri" => export.uri().into(),
        "pattern" if shape.pattern == Pattern::Random => "rand".into(),
        "direction" => word(&shape.direction).into(),
        "block" => shape.block.to_string().into(),
        "depth" => shape.depth.to_string().into(),
        "time" => job.time.as_millis().max(1).to_string().into(),
        "warm-up" => job.warm_up.as_millis().max(1).to_string().into(),
        "cpu" => {
            let word = |cpu| format!("--cpus_allowed={cpu}");
            job.cpu.map(word).unwrap_or_default().into()
        }
        "output" => output.into(),
        _ => OsString::new(),
    })
}

/// What fio measured. Lines before the JSON are its engine's.
fn sample(text: &str, direction: Direction) -> Option<Sample> {
    let json: Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let job = &json["jobs"][0];
    if job["error"] != 0 {
        return None;
    }
    let of = &job[word(&direction)];
    let bytes_per_second = of["bw_bytes"].as_f64().filter(|&speed| speed > 0.0)?;
    let lat = &of["lat_ns"];
    let at = |name: &str| Some(lat["percentile"][name].as_f64()? / 1000.0);
    Some(Sample {
        bytes_per_second,
        latency: Some(Latency {
            p50_us: at("50.000000")?,
            p90_us: at("90.000000")?,
            p99_us: at("99.000000")?,
            p99_9_us: at("99.900000")?,
            max_us: lat["max"].as_f64()? / 1000.0,
        }),
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"fio: connected to NBD server
{ "jobs": [ { "error": 0, "read": { "bw_bytes": 4096000, "lat_ns": { "max": 9000,
  "percentile": { "50.000000": 1000, "90.000000": 2000, "99.000000": 3000, "99.900000": 4500 } } },
  "write": { "bw_bytes": 0, "lat_ns": { "max": 0 } } } ] }"#;

    #[test]
    fn speed_and_latency_are_those_of_the_direction() {
        let sample = sample(JSON, Direction::Read).expect("a sample");
        assert_eq!(sample.bytes_per_second, 4_096_000.0);
        let latency = sample.latency.expect("percentiles");
        assert_eq!((latency.p99_us, latency.max_us), (3.0, 9.0));
    }

    #[test]
    fn what_says_nothing_is_no_sample() {
        assert!(super::sample(JSON, Direction::Write).is_none());
        for text in ["", "{", "{}", &JSON.replace("\"error\": 0", "\"error\": 5")] {
            assert!(super::sample(text, Direction::Read).is_none(), "{text}");
        }
    }
}
