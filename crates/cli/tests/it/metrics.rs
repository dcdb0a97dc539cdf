//! `--metrics`: what a Prometheus is told, asked by curl and read by Prometheus' own Python library.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use crate::server::{READY, Server, run, text, value, wait_until};
use cryptline_testkit::peer::{self, Peer};

/// Prints each sample as `name{sorted labels} value`.
const READ: &str = r#"
import sys
from prometheus_client.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    assert family.documentation and family.type != "unknown", family
    for sample in family.samples:
        labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
        print(f"{sample.name}{{{labels}}} {sample.value}")
"#;

/// The program that asks, and the one that reads.
struct Prometheus {
    curl: Peer,
    python: Peer,
}

impl Prometheus {
    fn require() -> Option<Self> {
        Some(Self { curl: peer::require("curl")?, python: peer::require("python3-prometheus-client")? })
    }

    fn asks(&self, arguments: &[&str]) -> String {
        let common = ["--silent", "--show-error", "--fail", "--max-time", "20"];
        let answer = self.curl.run(common.iter().chain(arguments)).success();
        let mut reader = self.python.command();
        reader.args(["-c", READ]);
        let read = peer::run_with_input(&mut reader, READY, &answer.stdout);
        read.success().stdout_text()
    }
}

fn sample(samples: &str, name: &str) -> f64 {
    let line = samples.lines().find_map(|line| line.strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{samples}"));
    line.trim().parse().unwrap()
}

#[test]
fn prometheus_reads_what_clients_did() {
    let (Some(prometheus), Some(nbdcopy)) = (Prometheus::require(), peer::require("nbdcopy")) else {
        return;
    };
    let server = Server::start(["ram:16M", "--export-name", "a\"b", "--metrics", "0"]);
    let url = value(&server.process.stdout_text(), "metrics");
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    let before = prometheus.asks(&[&url]);
    let reads = "cryptline_operation_bytes_total{export=a\"b,operation=read}";
    assert!(sample(&before, reads).abs() < 0.5);
    nbdcopy.run([&*server.uri, "null:"]).success();
    // Counted when the reply was queued; the client's copy may be sooner.
    let mut after = String::new();
    wait_until("everything is counted", || {
        after = prometheus.asks(&[&url]);
        sample(&after, reads) >= f64::from(16 << 20)
            && sample(&after, "cryptline_export_connections{export=a\"b}").abs() < 0.5
    });
    let of = |name: &str| sample(&after, &format!("{name}{{export=a\"b,operation=read}}"));
    let count = of("cryptline_operation_duration_seconds_count");
    assert!(count >= 1.0 && (count - of("cryptline_operations_total")).abs() < 0.5);
    assert!(of("cryptline_operation_duration_seconds_sum") > 0.0);
    let all = "cryptline_operation_duration_seconds_bucket{export=a\"b,le=+Inf,operation=read}";
    assert!((sample(&after, all) - count).abs() < 0.5);
    assert!(sample(&after, "cryptline_cipher_seconds_total{export=a\"b}") > 0.0);
    let info = "cryptline_export_info{cipher=aes-xts-plain64,export=a\"b,read_only=false,sector_size=4096,source=ram,type=random key}";
    assert!((sample(&after, info) - 1.0).abs() < 1e-9);
    // Also in the sandbox.
    for figure in ["process_cpu_seconds_total{}", "process_resident_memory_bytes{}", "process_max_fds{}"] {
        assert!(sample(&after, figure) > 0.0, "{after}");
    }
    let size = sample(&after, "cryptline_export_size_bytes{export=a\"b}");
    assert!((size - f64::from(16 << 20)).abs() < 0.5);
    server.stop();
}

#[test]
fn askers_that_say_nothing_keep_no_place_and_no_client_waiting() {
    let Some(prometheus) = Prometheus::require() else {
        return;
    };
    let server = Server::start(["ram:1M", "--metrics", "127.0.0.1:0"]);
    let url = value(&server.process.stdout_text(), "metrics");
    let address = url.trim_start_matches("http://");
    let address = address.trim_end_matches("/metrics");
    // Every place taken by somebody who asks for half a thing.
    let silent: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            // The oldest gives way.
            let _ = stream.write_all(b"GET /met");
            stream
        })
        .collect();
    assert!(prometheus.asks(&[&url]).contains("cryptline_build_info"));
    if let Some(nbdinfo) = peer::require("nbdinfo") {
        nbdinfo.run(["--size", &server.uri]).success();
    }
    for mut stream in silent {
        stream.set_read_timeout(Some(READY)).unwrap();
        // Closed by the server, which one side's timeout would not show.
        let ended = stream.read(&mut [0; 64]);
        let is_closed = match &ended {
            Ok(length) => *length == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        assert!(is_closed, "{ended:?}");
    }
    assert!(prometheus.asks(&[&url]).contains("cryptline_build_info"));
    server.stop();
}

#[test]
fn a_unix_socket_is_private_and_removed_and_a_taken_port_is_named() {
    let Some(prometheus) = Prometheus::require() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = text(&folder.path().join("metrics"));
    let place = format!("unix:{socket}");
    let server = Server::start(["ram:1M", "--metrics", &place]);
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let samples = prometheus.asks(&["--unix-socket", &socket, "http://localhost/metrics"]);
    assert!(samples.contains("process_start_time_seconds"), "{samples}");
    server.stop();
    assert!(!std::path::Path::new(&socket).exists());

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    // Before anything is opened, and so before a passphrase is asked for.
    let point = text(folder.path());
    for verb in [&["serve", "/no/image"][..], &["mount", "/no/image", &point]] {
        let arguments = verb.iter().copied().chain(["--metrics", &port]);
        let refused = run(arguments).exited_with(5);
        assert!(refused.stderr_text().contains("choose another port"), "{refused}");
    }
}

#[test]
fn the_dashboard_asks_only_for_what_there_is() {
    let dashboard = include_str!("../../../../docs/grafana.json");
    let document = include_str!("../../../../docs/metrics.md");
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let server = Server::start(["ram:1M", "--metrics", "0"]);
    let url = value(&server.process.stdout_text(), "metrics");
    let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    server.stop();
    let names = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let ours = words.filter(|word| word.starts_with("cryptline_"));
        ours.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
    };
    let asked = names(&dashboard.to_string());
    assert!(asked.len() > 8, "{asked:?}");
    for name in asked {
        assert!(told.contains(&format!("# TYPE {name} ")), "{name}");
    }
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let quantiles = targets.filter_map(|target| {
        let word = |member: &str| target[member].as_str().unwrap();
        let (quantile, _) = word("expr").strip_prefix("histogram_quantile(")?.split_once(',')?;
        Some((quantile, word("legendFormat")))
    });
    for (quantile, legend) in quantiles {
        let percent = quantile.parse::<f64>().unwrap() * 100.0;
        assert!(legend.ends_with(&format!(" p{percent}")), "{quantile} is called {legend}");
    }
    for line in told.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        assert!(document.contains(&format!("`{name}`")), "{name} is not in docs/metrics.md");
    }
}
