//! Output of `--version`.

use std::sync::LazyLock;

/// The version, where known the commit, and what was compiled in.
pub static LONG: LazyLock<String> = LazyLock::new(|| {
    let commit = match option_env!("CRYPTLINE_COMMIT") {
        Some(commit) => format!(" (commit {commit})"),
        None => String::new(),
    };
    let features = if cfg!(feature = "rbd") { "rbd" } else { "none" };
    let version = env!("CARGO_PKG_VERSION");
    let machine = std::env::consts::ARCH;
    format!("{version}{commit}\nfeatures: {features}\nmachine:  {machine}\nlicense:  MIT or Apache-2.0")
});
