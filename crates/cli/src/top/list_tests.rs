//! Screens, for servers whose exports are made up.

use serde_json::{from_value, json};

use super::*;

/// A server of exports with these names, operations a second, and milliseconds of the 99th percentile.
fn server(socket: &str, exports: &[(&str, f64, f64)]) -> ShownServer {
    let export = |&(name, iops, p99): &(&str, f64, f64)| {
        let bytes = if iops < 10.0 { 9.0 - iops } else { iops } * 4096.0;
        let latency = json!({"p50": p99 / 2.0, "p99": p99 * 1000.0});
        json!({"name": name, "size": 1 << 20, "connections": 2, "operations": {
            "read": {"iops": iops, "bytes_per_second": bytes, "latency_us": latency, "errors": 1},
            "write": {"iops": 1.0, "bytes_per_second": 4096.0, "errors": 2}}})
    };
    let exports: Vec<_> = exports.iter().map(export).collect();
    let sample = from_value(json!({"uptime_s": 3661.5, "interval_s": 1.0, "exports": exports})).unwrap();
    ShownServer { socket: socket.to_owned(), sample, ended: false }
}

fn widest(lines: &[String]) -> usize {
    lines.iter().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn only_export_is_shown_with_its_details() {
    let servers = [server("/run/s", &[("disk", 123_456.0, 1.5)])];
    let mut focus = Focus::default();
    let lines = screen_lines(&servers, &focus, 80, 24);
    let expected = [
        "cryptline  /run/s   up 01:01:01   each 1.0 s",
        KEYS,
        "  export        conn read/s       read write/s      write     p50     p99 errors",
        "> disk             2 123456  482 MiB/s       1 4.00 KiB/s 0.75 µs 1.50 ms      3",
    ];
    assert_eq!(lines[..4], expected);
    assert_eq!(lines[5], "export \"disk\"  1 MiB  2 connections  cpu -  cipher - of it");
    assert_eq!(lines.len(), 11);
    focus.toggle(&servers);
    assert_eq!(screen_lines(&servers, &focus, 80, 24).len(), 4);
}

#[test]
fn every_line_fits_from_sixty_columns_on() {
    let long = "a name that is much longer than there is room for\u{1b}[2J";
    let one = server("/run/s", &[(long, 999_999.0, 999.0), ("", 0.0, 0.0)]);
    let servers = [one, server("/run/t", &[(long, 1.0, 1.0)])];
    for columns in [60, 70, 79, 80, 100, 200] {
        let focus = Focus { details: Some(true), ..Focus::default() };
        let lines = screen_lines(&servers, &focus, columns, 24);
        assert!(widest(&lines[2..7]) <= columns, "{columns}: {lines:#?}");
        assert_eq!(widest(&lines[3..4]), widest(&lines[4..7]), "figures stand below their titles: {lines:#?}");
        assert!(lines.iter().all(|line| !line.contains('\u{1b}')));
        assert!(lines.iter().any(|line| line.contains("…@2 ")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("\"\"@1 ")), "{lines:#?}");
    }
}

#[test]
fn selected_export_is_among_those_that_there_is_room_for() {
    let names: Vec<String> = (0..40).map(|number| format!("disk-{number:02}")).collect();
    let exports: Vec<_> = names.iter().map(|name| (name.as_str(), 1.0, 1.0)).collect();
    let servers = [server("/run/s", &exports)];
    let mut focus = Focus::default();
    let shown = |focus: &Focus| {
        let lines = screen_lines(&servers, focus, 80, 24);
        assert!(lines.len() <= 24, "{lines:#?}");
        let selected = lines.iter().find(|line| line.starts_with('>')).expect("the selected one");
        let hidden = lines.iter().find(|line| line.contains("more above")).expect("how many are not shown");
        let count = lines.iter().filter(|line| line.contains("disk-")).count();
        (selected[2..9].to_owned(), hidden.trim().to_owned(), count)
    };
    assert_eq!(shown(&focus), ("disk-00".to_owned(), "0 more above, 20 below".to_owned(), 20));
    focus.move_by(&servers, 25);
    assert_eq!(shown(&focus), ("disk-25".to_owned(), "6 more above, 14 below".to_owned(), 20));
    focus.move_by(&servers, 1000);
    assert_eq!(shown(&focus).0, "disk-39");
    focus.move_by(&servers, -1000);
    focus.move_by(&servers, 3);
    // Another order moves it, and it stays selected.
    focus.sort = Sort::Name;
    assert_eq!(shown(&focus).0, "disk-03");
    focus.toggle(&servers);
    assert_eq!(shown(&focus).2, 14, "with one line of details");
    // A terminal of three lines has none for anything else.
    assert!(screen_lines(&servers, &focus, 80, 3).len() <= 3);
}

#[test]
fn exports_of_all_servers_are_sorted_together() {
    let servers =
        [server("one", &[("b", 1.0, 7.0), ("d", 2.0, 5.0)]), server("two", &[("a", 4.0, 1.0), ("c", 3.0, 6.0)])];
    for (key, expected) in [(b's', "bdac"), (b'n', "abcd"), (b'I', "acdb"), (b'b', "bdca"), (b'l', "bcda")] {
        let focus = Focus { sort: Sort::of_key(key).unwrap(), ..Focus::default() };
        let lines = screen_lines(&servers, &focus, 120, 24);
        let order: String = lines[4..].iter().filter_map(|line| line.chars().nth(2)).collect();
        assert_eq!(order, expected, "{}", char::from(key));
        assert!(lines.iter().any(|line| line[2..].starts_with("a@2 ")));
    }
}

#[test]
fn servers_leave_room_for_their_exports() {
    let servers: Vec<_> = (0..40).map(|number| server(&format!("/run/{number}"), &[("disk", 1.0, 1.0)])).collect();
    let lines = screen_lines(&servers, &Focus::default(), 80, 24);
    assert_eq!(lines[7], "and 33 more servers");
    assert!(lines.iter().any(|line| line.contains("more above, ")), "{lines:#?}");
    assert!(lines.len() <= 24);
}
