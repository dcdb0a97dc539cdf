//! Figures as text.

use serde_json::{from_value, json};

use super::*;

fn sample() -> StatsSample {
    let read = json!({
        "requests": 10, "bytes": 40960, "errors": 2, "iops": 12345.6,
        "bytes_per_second": 50_567_577.6,
        "latency_us": {"p50": 52.1, "p90": 120.0, "p99": 1234.0, "p999": 99_960.0, "max": 1e7}
    });
    let flush = json!({"requests": 0, "bytes": 0, "errors": 0, "iops": 0.0,
        "bytes_per_second": 0.0, "latency_us": null});
    from_value(json!({"version": 1, "uptime_s": 3661.5, "interval_s": 1.0, "exports": [{
        "name": "a\u{1b}[2J", "size": 1 << 30, "connections": 1, "crypto_share": 0.31,
        "busy_share": 1.5, "operations": {"read": read, "flush": flush}}]}))
    .unwrap()
}

#[test]
fn columns_stand_below_their_titles() {
    let lines = detail_lines(&sample().exports[0], 120);
    assert_eq!(lines[0], "export \"a\\u{1b}[2J\"  1 GiB  1 connection  cpu 150 %  cipher 31 % of it");
    assert_eq!(lines[1], TITLES);
    assert_eq!(lines[2], "  read         12346   48.2 MiB/s   52.1 µs    120 µs   1.23 ms    100 ms    10.0 s       2");
    let width = |line: &String| line.chars().count();
    assert!(lines[1..].iter().all(|line| width(line) == width(&lines[1])));
    let lines = detail_lines(&sample().exports[0], 60);
    assert_eq!(lines[1], NARROW_TITLES);
    assert_eq!(lines[2], "  read         12346   48.2 MiB/s   52.1 µs   1.23 ms      2");
    assert!(lines[1..].iter().all(|line| width(line) == 60));
}

#[test]
fn a_log_line_has_only_what_happened() {
    assert_eq!(
        sample_lines(&sample()),
        "01:01:01 export \"a\\u{1b}[2J\"  1 GiB  1 connection  cpu 150 %  cipher 31 % of it  \
         read: 12346/s 48.2 MiB/s p50 52.1 µs p99 1.23 ms 2 errors\n"
    );
}

#[test]
fn members_that_a_sample_lacks_are_shown_as_nothing() {
    let other: StatsSample = from_value(json!({"exports": [{}, {"operations": {"x": 1, "read": {}}}]})).unwrap();
    assert!(sample_lines(&other).starts_with("00:00:00 export \"\"  0 bytes"));
    assert!(detail_lines(&other.exports[1], 120)[2].starts_with(&format!("  read{:>14}", 0)));
}
