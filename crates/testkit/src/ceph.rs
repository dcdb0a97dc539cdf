//! A Ceph cluster on this machine, for one test: a monitor and three storage daemons that keep everything in memory.
//!
//! It needs no root, no systemd and no manager, and lies in one folder. All of it listens on loopback, and ends with the
//! value. An image should stay below 512 MiB: memory keeps what was overwritten.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::peer::{self, Background, Peer, Run};

/// Daemons that store.
const OSDS: usize = 3;
/// How long anything may take to get ready, on a busy machine.
const READY: Duration = Duration::from_secs(120);
/// The pool that there is from the start.
pub const POOL: &str = "rbd";

/// A cluster with the pool [`POOL`].
pub struct Ceph {
    // Before the folder, which they write to.
    osds: Vec<Option<Background>>,
    _monitor: Background,
    programs: Programs,
    folder: TempDir,
}

struct Programs {
    ceph: Peer,
    rbd: Peer,
    osd: Peer,
}

impl Ceph {
    /// Starts one; `None` where Ceph is not installed, which was said then.
    ///
    /// # Panics
    /// Where it does not get ready.
    #[must_use]
    pub fn start() -> Option<Self> {
        let names = ["ceph-authtool", "ceph-mon", "ceph-osd", "ceph", "rbd"];
        let [authtool, mon, osd, ceph, rbd] = peer::require_all(names)?;
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["run", "log", "mon"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let port = free_port();
        let fsid = uuid();
        let conf = folder.path().join("ceph.conf");
        fs::write(&conf, configuration(folder.path(), &fsid, port)).expect("room");
        let keyring = text(&folder.path().join("keyring"));
        let caps = ["--cap", "mon", "allow *"];
        let new = ["-C", &keyring, "--gen-key", "-n", "mon."];
        authtool.run(new.iter().chain(&caps)).success();
        let admin = [&keyring, "--gen-key", "-n", "client.admin"];
        let all = ["--cap", "mon", "allow *", "--cap", "osd", "allow *"];
        authtool.run(admin.into_iter().chain(all)).success();

        let address = format!("v2:127.0.0.1:{port}");
        let monitor = |more: &[&str]| {
            let mut command = mon.command();
            command.env("CEPH_CONF", &conf).args(["-i", "a"]).args(more);
            command.args(["--public-addr", &address]);
            command
        };
        let mkfs = ["--mkfs", "--fsid", &fsid, "--keyring", &keyring];
        peer::run(&mut monitor(&mkfs), READY).success();
        let monitor = Background::spawn(&mut monitor(&["-f"]));
        let mut cluster = Self {
            osds: Vec::new(),
            _monitor: monitor,
            programs: Programs { ceph, rbd, osd },
            folder,
        };
        cluster.add_osds(&keyring);
        cluster.wait_for_osds(OSDS);
        cluster
            .ceph(["osd", "pool", "create", POOL, "32", "32"])
            .success();
        cluster
            .ceph(["osd", "pool", "application", "enable", POOL, "rbd"])
            .success();
        cluster.rbd(["pool", "init", POOL]).success();
        Some(cluster)
    }

    /// The configuration that clients want.
    #[must_use]
    pub fn conf(&self) -> PathBuf {
        self.folder.path().join("ceph.conf")
    }

    /// Its own folder, for more configurations.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `ceph`.
    pub fn ceph<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Run {
        let mut command = self.programs.ceph.command();
        peer::run(self.of_this(command.args(arguments)), READY)
    }

    /// Runs `rbd`.
    pub fn rbd<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Run {
        let mut command = self.programs.rbd.command();
        peer::run(self.of_this(command.args(arguments)), READY)
    }

    /// Kills one of the storage daemons as a crash would, and lets the cluster know.
    pub fn kill_osd(&mut self, osd: usize) {
        if let Some(mut process) = self.osds[osd].take() {
            process.kill();
        }
        self.ceph(["osd", "down", &osd.to_string()]).success();
    }

    /// Starts all storage daemons that do not run. What a killed one had in memory comes from the others.
    pub fn start_osds(&mut self) {
        for osd in 0..self.osds.len() {
            if self.osds[osd].is_none() {
                self.make_osd(osd);
                self.osds[osd] = Some(self.start_osd(osd));
            }
        }
        self.wait_for_osds(OSDS);
    }

    fn add_osds(&mut self, keyring: &str) {
        for osd in 0..OSDS {
            let number = osd.to_string();
            let id = uuid();
            let folder = self.folder.path().join(format!("osd.{osd}"));
            fs::create_dir(&folder).expect("a folder");
            fs::write(folder.join("uuid"), &id).expect("room");
            fs::copy(keyring, folder.join("keyring")).expect("room");
            self.ceph(["osd", "new", &id, &number]).success();
            self.make_osd(osd);
            let process = self.start_osd(osd);
            self.osds.push(Some(process));
        }
    }

    /// Makes its store anew; it is empty after a crash.
    fn make_osd(&self, osd: usize) {
        let folder = self.folder.path().join(format!("osd.{osd}"));
        let id = fs::read_to_string(folder.join("uuid")).expect("written when it was added");
        let mut command = self.programs.osd.command();
        command.args(["-i", &osd.to_string(), "--mkfs", "--osd-uuid", &id]);
        peer::run(self.of_this(&mut command), READY).success();
    }

    fn start_osd(&self, osd: usize) -> Background {
        let mut command = self.programs.osd.command();
        command.args(["-i", &osd.to_string(), "-f"]);
        Background::spawn(self.of_this(&mut command))
    }

    fn wait_for_osds(&self, count: usize) {
        let deadline = std::time::Instant::now() + READY;
        loop {
            let stat = self.ceph(["osd", "stat", "-f", "json"]).success();
            if stat
                .stdout_text()
                .contains(&format!("\"num_up_osds\":{count}"))
            {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "not ready: {stat}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn of_this<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("CEPH_CONF", self.conf())
            .env_remove("CEPH_ARGS")
    }
}

fn configuration(folder: &Path, fsid: &str, port: u16) -> String {
    let root = folder.display();
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
            ("auth cluster required", word("none")),
            ("auth service required", word("none")),
            ("auth client required", word("none")),
            ("keyring", format!("{root}/keyring")),
            ("run dir", format!("{root}/run")),
            ("admin socket", format!("{root}/run/$name.$pid.asok")),
            ("pid file", format!("{root}/run/$name.pid")),
            ("log file", format!("{root}/log/$name.log")),
            ("crash dir", format!("{root}/log")),
            ("mon cluster log file", format!("{root}/log/cluster.log")),
            ("osd pool default size", word("3")),
            ("osd pool default min size", word("1")),
            ("osd crush chooseleaf type", word("0")),
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

/// A port that nobody listens on, and nobody gets before the monitor does: below those that the system gives out, at
/// another place in each process, and another for each cluster of it.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let place = std::process::id() % 2000 * 10;
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let ports = (0..10).filter_map(|_| {
        let more = NEXT.fetch_add(1, Ordering::Relaxed) % 10;
        u16::try_from(10_000 + place + more).ok()
    });
    let mut free = ports.filter(is_free);
    free.next().expect("a port that is free")
}

fn uuid() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("Linux has it");
    text.trim().to_owned()
}

fn text(path: &Path) -> String {
    path.to_str().expect("a name of letters").to_owned()
}
