//! The file that daemons and clients read.

use std::fmt::Write as _;
use std::path::Path;

use crate::Options;

/// Of a cluster in `folder`.
pub(crate) fn text(folder: &Path, fsid: &str, port: u16, options: Options) -> String {
    let root = folder.display();
    let auth = if options.needs_keys { "cephx" } else { "none" };
    let mut text = String::new();
    let mut section = |name: &str, lines: &[(&str, String)]| {
        let _ = writeln!(text, "[{name}]");
        for (key, value) in lines {
            let _ = writeln!(text, "{key} = {value}");
        }
    };
    let word = str::to_owned;
    section(
        "global",
        &[
            ("fsid", word(fsid)),
            ("mon host", format!("[v2:127.0.0.1:{port}/0]")),
            ("public addr", word("127.0.0.1")),
            ("cluster addr", word("127.0.0.1")),
            ("public network", word("127.0.0.0/8")),
            ("ms bind msgr1", word("false")),
            ("auth cluster required", word(auth)),
            ("auth service required", word(auth)),
            ("auth client required", word(auth)),
            ("keyring", format!("{root}/keyring")),
            ("run dir", format!("{root}/run")),
            ("admin socket", format!("{root}/run/$name.$pid.asok")),
            ("pid file", format!("{root}/run/$name.pid")),
            ("log file", format!("{root}/log/$name.log")),
            ("crash dir", format!("{root}/log")),
            ("mon cluster log file", format!("{root}/log/cluster.log")),
            ("osd pool default size", options.replicas.to_string()),
            ("osd pool default min size", word("1")),
            ("osd crush chooseleaf type", word("0")),
            ("mon allow pool size one", word("true")),
            ("mon warn on pool no redundancy", word("false")),
            ("mon data avail crit", word("1")),
            ("osd memory target", word("939524096")),
        ],
    );
    section(
        "mon",
        &[
            ("mon data", format!("{root}/mon")),
            ("paxos propose interval", word("0.05")),
            ("paxos min wait", word("0.01")),
            ("mon osd min down reporters", word("1")),
        ],
    );
    section(
        "osd",
        &[
            ("osd data", format!("{root}/osd.$id")),
            ("osd objectstore", word("memstore")),
            ("memstore device bytes", word("2147483648")),
            ("osd op num shards", word("2")),
            ("osd op num threads per shard", word("1")),
        ],
    );
    section("client", &[("log file", String::new())]);
    text
}
