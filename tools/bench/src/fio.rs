//! Load by fio: on an NBD server by its nbd engine over one connection, on a file by io_uring and past the page cache.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use cryptline_nbd::NbdUri;
use cryptline_nbd::uri::{Address, TlsOptions};
use serde_json::Value;

use crate::error::{Of as _, Result, fail};
use crate::load::LoadJob;
use crate::programs;
use crate::report::{DataDirection, Latency, Pattern, TurnResults, word};
use crate::setting::Setting;

/// The command line, see [`programs::words`].
const LINE: &str = "--name=load {engine} {target} --rw={pattern}{direction} --bs={block} --iodepth={depth} --thread \
    --time_based --runtime={time}ms --ramp_time={warm-up}ms --lat_percentiles=1 --clat_percentiles=0 \
    --percentile_list=50:90:99:99.9 --output-format=json {cpu} --output={output}";

/// A run as long as this that measures nothing is a failure.
const LONG: Duration = Duration::from_secs(1);

/// Target of fio's load.
#[derive(Clone, Debug)]
pub enum FioTarget {
    /// A server's Unix socket, and the name of its export.
    Nbd(PathBuf, &'static str),
    File(PathBuf),
}

impl FioTarget {
    /// How NBD clients name it, or the path of the file.
    pub fn uri(&self) -> String {
        match self {
            Self::Nbd(socket, export) => NbdUri {
                tls: false,
                address: Address::Unix(socket.clone()),
                export: (*export).to_owned(),
                tls_options: TlsOptions::default(),
            }
            .to_string(),
            Self::File(path) => path.display().to_string(),
        }
    }

    fn words(&self) -> [OsString; 2] {
        match self {
            Self::Nbd(..) => ["--ioengine=nbd".into(), format!("--uri={}", self.uri()).into()],
            // A file name's colons would separate files.
            Self::File(path) => {
                let name = path.display().to_string().replace(':', "\\:");
                ["--ioengine=io_uring".into(), format!("--filename={name}").into()]
            }
        }
    }
}

/// Loads a target in a turn.
pub fn load(setting: &Setting, target: &FioTarget, job: &LoadJob) -> Result<TurnResults> {
    load_by(setting, target, job, |_| {})
}

/// The same by a command that is changed before it runs.
pub fn load_by(
    setting: &Setting,
    target: &FioTarget,
    job: &LoadJob,
    change: impl Fn(&mut Vec<OsString>),
) -> Result<TurnResults> {
    let output = setting.path("fio.json");
    let mut job = *job;
    loop {
        let [engine, name] = target.words();
        let words = programs::words(LINE, |word_of| match word_of {
            "engine" => engine.clone(),
            "target" => name.clone(),
            "pattern" if job.shape.pattern == Pattern::Random => "rand".into(),
            "direction" => word(&job.shape.direction).into(),
            "block" => job.shape.block.to_string().into(),
            "depth" => job.shape.depth.to_string().into(),
            "time" => job.time.as_millis().max(1).to_string().into(),
            "warm-up" => job.warm_up.as_millis().max(1).to_string().into(),
            "cpu" => job.cpu.map(|cpu| format!("--cpus_allowed={cpu}")).unwrap_or_default().into(),
            "output" => output.clone().into(),
            _ => OsString::new(),
        });
        let mut command = vec![OsString::from(setting.programs.path("fio"))];
        command.extend(words);
        if let FioTarget::File(_) = target {
            command.push("--direct=1".into());
        }
        change(&mut command);
        setting.run(&command)?;
        let text = std::fs::read_to_string(&output).of("what fio says")?;
        if let Some(sample) = sample(&text, job.shape.direction) {
            return Ok(sample);
        }
        // On a busy machine all of a short time may pass before a request ends.
        if job.time >= LONG {
            fail!("fio failed: its JSON does not say what it measured");
        }
        job.time *= 4;
    }
}

/// Returns what fio measured, from its output. Lines before the JSON are its engine's.
fn sample(text: &str, direction: DataDirection) -> Option<TurnResults> {
    let json: Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let job = &json["jobs"][0];
    if job["error"] != 0 {
        return None;
    }
    let of = &job[word(&direction)];
    let bytes_per_second = of["bw_bytes"].as_f64().filter(|&speed| speed > 0.0)?;
    let lat = &of["lat_ns"];
    let at = |name: &str| Some(lat["percentile"][name].as_f64()? / 1000.0);
    let latency = Some(Latency {
        p50_us: at("50.000000")?,
        p90_us: at("90.000000")?,
        p99_us: at("99.000000")?,
        p99_9_us: at("99.900000")?,
        max_us: lat["max"].as_f64()? / 1000.0,
    });
    Some(TurnResults { bytes_per_second, latency, ..TurnResults::default() })
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
        let sample = sample(JSON, DataDirection::Read).expect("a sample");
        assert_eq!(sample.bytes_per_second, 4_096_000.0);
        let latency = sample.latency.expect("percentiles");
        assert_eq!((latency.p99_us, latency.max_us), (3.0, 9.0));
    }

    #[test]
    fn what_says_nothing_is_no_sample() {
        assert!(super::sample(JSON, DataDirection::Write).is_none());
        for text in ["", "{", "{}", &JSON.replace("\"error\": 0", "\"error\": 5")] {
            assert!(super::sample(text, DataDirection::Read).is_none(), "{text}");
        }
    }
}
