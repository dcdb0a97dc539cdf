//! The committed header declares what the source does: constants, fields in their order, and calls with their
//! parameters. `cargo xtask header` makes it again. That the library has the calls is for `c_programs.rs`.

use std::fs;
use std::path::Path;

/// A text without comments, in which any space is one.
fn plain(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

fn source() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = fs::read_dir(folder).unwrap().map(|entry| plain(&fs::read_to_string(entry.unwrap().path()).unwrap()));
    files.collect::<Vec<_>>().join(" ")
}

/// Texts between each `begin` and the next `end`.
fn between<'a>(text: &'a str, begin: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(begin).skip(1).map(move |rest| rest.split(end).next().unwrap_or_default())
}

/// Declares a name of a type of Rust in C.
fn declared(name: &str, kind: &str) -> String {
    for (pointer, constant) in [("*mut ", ""), ("*const ", "const ")] {
        if let Some(target) = kind.strip_prefix(pointer) {
            let target = declared(&format!("*{name}"), target);
            return format!("{constant}{target}");
        }
    }
    let kind = match kind {
        "c_int" => "int",
        "c_char" => "char",
        "c_void" => "void",
        "usize" => "size_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        of_ours => &format!("struct {of_ours}"),
    };
    format!("{kind} {name}")
}

/// Names and types in a list.
fn pairs(list: &str) -> impl Iterator<Item = (&str, &str)> {
    list.split(',').filter_map(|pair| {
        let (name, kind) = pair.split_once(": ")?;
        Some((name.trim().trim_start_matches("pub "), kind.trim()))
    })
}

fn constant(text: &str) -> String {
    let (name, value) = text.split_once(": u32 = ").unwrap();
    if value.contains(' ') { format!("#define {name} ({value})") } else { format!("#define {name} {value}") }
}

fn structure(text: &str) -> String {
    let (name, fields) = text.split_once(" { ").unwrap();
    let fields: String = pairs(fields).map(|(name, kind)| declared(name, kind) + "; ").collect();
    format!("typedef struct {name} {{ {fields}}} {name};")
}

fn call(text: &str) -> String {
    let (name, rest) = text.split_once('(').unwrap();
    let (parameters, result) = rest.split_once(')').unwrap();
    let parameters: Vec<_> = pairs(parameters).map(|(name, kind)| declared(name, kind)).collect();
    let parameters = if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") };
    declared(&format!("{name}({parameters});"), result.trim().trim_start_matches("-> "))
}

#[test]
fn header_declares_what_the_source_does() {
    let source = source();
    let committed = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/cryptline.h")).unwrap();
    let header = plain(&committed);
    let constants = between(&source, "pub const CRYPTLINE_", ";").map(|text| constant(&format!("CRYPTLINE_{text}")));
    let structures = between(&source, "#[repr(C)] #[derive(Clone, Copy)] pub struct ", "}").map(structure);
    let calls = between(&source, "extern \"C\" fn ", "{").map(call);
    let expected: Vec<String> = constants.chain(structures).chain(calls).collect();
    for declaration in &expected {
        assert!(header.contains(declaration), "the header has no `{declaration}`: cargo xtask header");
    }
    // The guard is one more definition.
    let count = |begin: &str| header.matches(begin).count();
    let calls = committed.lines().filter(|line| line.contains(" cryptline_") || line.contains("*cryptline_"));
    let calls = calls.filter(|line| line.starts_with("int ") || line.starts_with("const char ")).count();
    let declared = count("#define CRYPTLINE_") - 1 + count("typedef struct cryptline_") + calls;
    let opaque = count("typedef struct cryptline_") - expected.iter().filter(|it| it.starts_with("typedef")).count();
    assert_eq!(declared, expected.len() + opaque, "the header declares more than the source");
    assert!(opaque == 3 && calls > 20, "{opaque} opaque types, {calls} calls");
}
