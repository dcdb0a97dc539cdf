//! fio as a load generator: its command line, and what its JSON says.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cryptline_nbd::NbdUri;
use cryptline_nbd::uri::{Address, TlsOptions};
use serde_json::Value;

use super::jobs::Load;
use super::runs::Sample;
use crate::CliError;
use crate::bench::report::{Direction, Latency};

/// What to run.
pub struct Fio<'a> {
    /// fio itself.
    pub program: &'a Path,
    /// The load.
    pub load: Load,
    /// The server's socket.
    pub socket: &'a Path,
    /// Name of the export.
    pub export: &'a str,
    /// How long it counts.
    pub time: Duration,
    /// How long before.
    pub warm_up: Duration,
    /// The processor to stay on.
    pub cpu: Option<usize>,
    /// Where its JSON goes.
    pub output: &'a Path,
}

impl Fio<'_> {
    /// The command.
    pub fn command(&self) -> Vec<OsString> {
        let shape = self.load.shape(1);
        let uri = NbdUri {
            tls: false,
            address: Address::Unix(self.socket.to_owned()),
            export: self.export.to_owned(),
            tls_options: TlsOptions::default(),
        };
        let mut words = vec![
            self.program.into(),
            format!("--name={}", self.load).into(),
            "--ioengine=nbd".into(),
            format!("--uri={uri}").into(),
            format!("--rw={}", self.load.fio_rw()).into(),
            format!("--bs={}", shape.block).into(),
            format!("--iodepth={}", shape.depth).into(),
            "--thread".into(),
            "--time_based".into(),
            format!("--runtime={}ms", self.time.as_millis().max(1)).into(),
            format!("--ramp_time={}ms", self.warm_up.as_millis().max(1)).into(),
            "--lat_percentiles=1".into(),
            "--clat_percentiles=0".into(),
            "--percentile_list=50:90:99:99.9".into(),
            "--output-format=json".into(),
        ];
        words.extend(self.cpu.map(|cpu| format!("--cpus_allowed={cpu}").into()));
        let mut output = OsString::from("--output=");
        output.push(self.output);
        words.push(output);
        words
    }

    /// Runs it.
    ///
    /// # Errors
    /// Exit code 4 when it fails or does not say what it measured.
    pub fn run(&self) -> Result<Sample, CliError> {
        let failed = |why: &str| CliError::device(format!("fio failed: {why}"));
        let command = self.command();
        let run = Command::new(self.program)
            .args(&command[1..])
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(&error.to_string()))?;
        if !run.status.success() {
            let said = [run.stderr, run.stdout].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            let line = said.lines().find(|line| !line.trim().is_empty());
            return Err(failed(line.unwrap_or("it says nothing")));
        }
        let text =
            std::fs::read_to_string(self.output).map_err(|error| failed(&error.to_string()))?;
        let direction = self.load.shape(1).direction;
        sample(&text, direction).ok_or_else(|| failed("its JSON does not say what it measured"))
    }
}

/// What fio measured. Lines before the JSON are its engine's.
fn sample(text: &str, direction: Direction) -> Option<Sample> {
    let json: Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let job = &json["jobs"][0];
    if job["error"] != 0 {
        return None;
    }
    let of = &job[direction.name()];
    let bytes_per_second = of["bw_bytes"].as_f64().filter(|&speed| speed > 0.0)?;
    let lat = &of["lat_ns"];
    let at = |name: &str| Some(lat["percentile"][name].as_f64()? / 1000.0);
    Some(Sample {
        bytes_per_second,
        latency: Latency {
            p50_us: at("50.000000")?,
            p90_us: at("90.000000")?,
            p99_us: at("99.000000")?,
            p99_9_us: at("99.900000")?,
            max_us: lat["max"].as_f64()? / 1000.0,
        },
        client_busy: None,
        server_busy: None,
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
        assert_eq!(sample.latency.p99_us, 3.0);
        assert_eq!(sample.latency.max_us, 9.0);
    }

    #[test]
    fn what_says_nothing_is_no_sample() {
        assert!(super::sample(JSON, Direction::Write).is_none());
        for text in ["", "{", "{}", &JSON.replace("\"error\": 0", "\"error\": 5")] {
            assert!(super::sample(text, Direction::Read).is_none(), "{text}");
        }
    }
}
