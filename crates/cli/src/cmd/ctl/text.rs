//! Answers of a server, for people. It may be of another version: what it does not say is shown as nothing.

use serde_json::Value;

use crate::error::on_one_line;
use crate::serve::statistics::StatsSample;
use crate::size;
use crate::top::sample_lines;

/// A line for each export.
pub fn list(answer: &Value) -> String {
    let line = |export: &Value| {
        let words = [
            name(export),
            size::human(number(export, "size")),
            access(export).to_owned(),
            connections(number(export, "connections")),
            format!("{} ({})", text(export, "target"), text(export, "type")),
        ];
        let uris = export["uris"].as_array().into_iter().flatten().filter_map(Value::as_str).map(on_one_line);
        let line: Vec<_> = words.into_iter().chain(uris).collect();
        line.join("  ") + "\n"
    };
    exports(answer).map(line).collect()
}

fn access(export: &Value) -> &'static str {
    let is = |member: &str| export[member] == true;
    match (is("failed"), is("leaving"), is("read_only")) {
        (true, ..) => "FAILED: a write or flush was lost",
        (_, true, _) => "leaving",
        (.., true) => "read-only",
        _ => "read-write",
    }
}

/// As `top --once` shows it.
pub fn stats(answer: &Value) -> String {
    let sample = serde_json::from_value::<StatsSample>(answer.clone());
    sample_lines(&sample.unwrap_or_default())
}

/// Tells what is durable now.
pub fn flush(answer: &Value) -> String {
    let names = answer["flushed"].as_array().into_iter().flatten();
    let line = |name: &Value| format!("{}: all that was written is durable\n", quoted(name));
    names.map(line).collect()
}

/// Sizes before and now.
pub fn resize(answer: &Value) -> String {
    let line = |export: &Value| {
        let (before, now) = (number(export, "before"), number(export, "size"));
        let (name, size) = (name(export), size::human(now));
        if before == now {
            format!("{name}: {size}, as before\n")
        } else {
            let before = size::human(before);
            format!("{name}: {size}, {before} before; clients see it when they connect again\n")
        }
    };
    exports(answer).map(line).collect()
}

/// Until when what was read is good.
pub fn reload(answer: &Value) -> String {
    let until = answer["valid_until"].as_str().unwrap_or_default();
    format!("certificates read again; that of the server is valid until {until}\n")
}

/// Tells if the export called `name` is gone.
pub fn remove(answer: &Value, name: &str) -> String {
    let name = on_one_line(&format!("{name:?}"));
    if answer["closed"] == true {
        return format!("{name}: closed; all that was written to it is durable\n");
    }
    let connections = connections(number(answer, "connections"));
    format!("{name}: new clients do not get it; it is flushed and closed after {connections} (--force ends them)\n")
}

/// Where the new export is.
pub fn add(answer: &Value) -> String {
    let (name, size) = (name(answer), size::human(number(answer, "size")));
    let uris = answer["uris"].as_array().into_iter().flatten().filter_map(Value::as_str).map(on_one_line);
    let words: Vec<_> = [name, size].into_iter().chain(uris).collect();
    words.join("  ") + "\n"
}

fn exports(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["exports"].as_array().into_iter().flatten()
}

fn name(export: &Value) -> String {
    quoted(&export["name"])
}

fn quoted(name: &Value) -> String {
    on_one_line(&format!("{:?}", name.as_str().unwrap_or_default()))
}

fn text(export: &Value, member: &str) -> String {
    on_one_line(export[member].as_str().unwrap_or("?"))
}

fn number(export: &Value, member: &str) -> u64 {
    export[member].as_u64().unwrap_or(0)
}

fn connections(count: u64) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} connection{s}")
}
