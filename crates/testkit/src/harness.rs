//! A program that is its own test harness: its tests have the process, and its only thread, to themselves.

use std::process::Command;

/// Runs the tests that the command line asks for: as much of libtest's as `cargo test` and `cargo nextest` use.
/// Each has a process of its own: what one has called up must not meet the next.
///
/// # Panics
/// When a test does.
pub fn run(tests: &[(&str, &dyn Fn())]) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if has("--ignored") {
        return;
    }
    if has("--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    let wanted = arguments.iter().find(|argument| !argument.starts_with('-'));
    let selected = tests.iter().filter(|(name, _)| match wanted {
        Some(wanted) if has("--exact") => name == wanted,
        Some(wanted) => name.contains(wanted.as_str()),
        None => true,
    });
    for (name, test) in selected {
        if has("--exact") {
            test()
        } else {
            let program = std::env::current_exe().unwrap();
            assert!(Command::new(program).args(["--exact", name]).status().unwrap().success(), "{name} failed");
        }
        println!("test {name} ... ok");
    }
}
