//! A Ceph cluster on this machine, for as long as a test or a benchmark runs: a monitor, and storage daemons that keep
//! everything in memory.
//!
//! The cluster needs no root, no systemd and no manager, and lies in one folder. All of it listens on loopback, and
//! ends with the value. An image should stay below 512 MiB: memory keeps what was overwritten.

mod configuration;
mod groups;

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The pool that there is from the start.
pub const POOL: &str = "rbd";
/// The programs that must be there.
pub const PROGRAMS: [&str; 5] = ["ceph-authtool", "ceph-mon", "ceph-osd", "ceph", "rbd"];
/// How long the daemons may take to get ready, on a busy machine.
const READY: Duration = Duration::from_secs(120);

/// The shape of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterOptions {
    /// Daemons that store.
    pub osds: usize,
    /// Of them, how many have each object.
    pub replicas: usize,
    /// Set if clients need a key (`cephx`).
    pub needs_keys: bool,
}

/// A cluster with the pool [`POOL`]. Daemons are killed when it is dropped; what they wrote stays in the folder.
#[derive(Debug)]
pub struct CephCluster {
    osds: Vec<Option<Daemon>>,
    monitor: Option<Daemon>,
    folder: PathBuf,
    options: ClusterOptions,
}

/// A value, or the reason why there is no cluster.
pub type Result<T> = std::result::Result<T, String>;

impl CephCluster {
    /// Starts one in `folder`, which is empty.
    ///
    /// Errors: a program is not there, or says what is wrong.
    pub fn start(folder: &Path, options: ClusterOptions) -> Result<Self> {
        for name in ["run", "log", "mon"] {
            let made = fs::create_dir(folder.join(name));
            made.map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let (port, fsid) = (free_port()?, uuid()?);
        write(&folder.join("ceph.conf"), &configuration::text(folder, &fsid, port, options))?;
        let new = ["--gen-key", "-n"];
        let keyring = folder.join("keyring");
        let key = |more: &[&str]| {
            let mut command = command(folder, "ceph-authtool");
            command.arg(&keyring).args(new).args(more);
            command
        };
        run(key(&["mon.", "--cap", "mon", "allow *"]).arg("-C"))?;
        let all = ["--cap", "mon", "allow *", "--cap", "osd", "allow *"];
        run(key(&["client.admin"]).args(all))?;

        let address = format!("v2:127.0.0.1:{port}");
        let monitor = || {
            let mut command = command(folder, "ceph-mon");
            command.args(["-i", "a", "--public-addr", &address]);
            command
        };
        let mkfs = ["--mkfs", "--fsid", &fsid, "--keyring"];
        run(monitor().args(mkfs).arg(&keyring))?;
        let mut node = Self {
            monitor: Some(Daemon::spawn(monitor().arg("-f"))?),
            osds: Vec::new(),
            folder: folder.to_owned(),
            options,
        };
        for osd in 0..options.osds {
            node.add_osd(osd)?;
        }
        node.wait_for_osds()?;
        let groups = groups::COUNT.to_string();
        for words in [&["pool", "create", POOL, &groups, &groups][..], &["pool", "application", "enable", POOL, "rbd"]]
        {
            run(node.command("ceph").arg("osd").args(words))?;
        }
        run(node.command("rbd").args(["pool", "init", POOL]))?;
        Ok(node)
    }

    /// The configuration that clients want.
    #[must_use]
    pub fn conf(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    /// A program of Ceph for this cluster.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        command(&self.folder, program)
    }

    /// Kills one of the storage daemons as a crash would, and lets the cluster know. What it has in memory is lost, so the
    /// others have all of it before.
    ///
    /// Errors: they do not get it; the monitor does not take it.
    pub fn kill_osd(&mut self, osd: usize) -> Result<()> {
        self.wait_for_copies()?;
        drop(self.osds[osd].take());
        run(self.command("ceph").args(["osd", "down"]).arg(osd.to_string())).map(drop)
    }

    /// Kills all storage daemons, and nobody is told. What they have in memory is lost.
    pub fn kill_osds(&mut self) {
        self.osds.iter_mut().for_each(|osd| drop(osd.take()));
    }

    /// Kills the monitor, too. There is no way back.
    pub fn kill_all(&mut self) {
        self.kill_osds();
        self.monitor = None;
    }

    /// Starts all storage daemons that do not run. What a killed one had in memory comes from the others.
    ///
    /// Errors: one does not get ready.
    pub fn start_osds(&mut self) -> Result<()> {
        for osd in 0..self.osds.len() {
            if self.osds[osd].is_none() {
                self.osds[osd] = Some(self.start_osd(osd)?);
            }
        }
        self.wait_for_osds()
    }

    fn add_osd(&mut self, osd: usize) -> Result<()> {
        let (id, folder) = (uuid()?, self.osd_folder(osd));
        let name = format!("osd.{osd}");
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        write(&folder.join("uuid"), &id)?;
        let number = osd.to_string();
        run(self.command("ceph").args(["osd", "new", &id, &number]))?;
        let keyring = folder.join("keyring");
        let caps = ["--cap", "mon", "allow profile osd", "--cap", "osd", "allow *"];
        let mut key = self.command("ceph-authtool");
        key.arg("-C").arg(&keyring).args(["--gen-key", "-n", &name]);
        run(key.args(caps))?;
        run(self.command("ceph").args(["auth", "import", "-i"]).arg(&keyring))?;
        let daemon = self.start_osd(osd)?;
        self.osds.push(Some(daemon));
        Ok(())
    }

    /// Makes its store anew, since it is empty after a crash, and starts it.
    fn start_osd(&self, osd: usize) -> Result<Daemon> {
        let folder = self.osd_folder(osd);
        let id = fs::read_to_string(folder.join("uuid")).map_err(|error| error.to_string())?;
        let daemon = || {
            let mut command = self.command("ceph-osd");
            command.args(["-i", &osd.to_string(), "--keyring"]);
            command.arg(folder.join("keyring"));
            command
        };
        run(daemon().args(["--mkfs", "--osd-uuid", &id]))?;
        Daemon::spawn(daemon().arg("-f"))
    }

    fn osd_folder(&self, osd: usize) -> PathBuf {
        self.folder.join(format!("osd.{osd}"))
    }

    fn wait_for_osds(&self) -> Result<()> {
        wait_until(|| {
            let stat = self.osd_stat()?;
            let up = stat["num_up_osds"].as_u64();
            let is_ready = up == u64::try_from(self.options.osds).ok();
            Ok((!is_ready).then(|| format!("Ceph's storage daemons do not get ready: {stat}")))
        })
    }

    /// Until every object is at every daemon that shall have it.
    fn wait_for_copies(&self) -> Result<()> {
        let epoch = self.osd_stat()?["epoch"].as_u64();
        let epoch = epoch.ok_or_else(|| "Ceph does not name its map".to_owned())?;
        let socket = |(osd, daemon): (usize, &Option<Daemon>)| {
            let id = daemon.as_ref()?.0.id();
            Some(self.folder.join(format!("run/osd.{osd}.{id}.asok")))
        };
        let daemons: Vec<_> = self.osds.iter().enumerate().filter_map(socket).collect();
        wait_until(|| {
            let degraded = groups::first_degraded(&daemons, epoch);
            Ok(degraded.map(|group| format!("Ceph's placement group {group} does not get whole")))
        })
    }

    fn osd_stat(&self) -> Result<serde_json::Value> {
        let stat = run(self.command("ceph").args(["osd", "stat", "-f", "json"]))?;
        serde_json::from_str(&stat).map_err(|error| format!("{stat}: {error}"))
    }
}

/// Returns once `what_lacks` names nothing.
fn wait_until(what_lacks: impl Fn() -> Result<Option<String>>) -> Result<()> {
    let deadline = Instant::now() + READY;
    while let Some(lack) = what_lacks()? {
        if Instant::now() > deadline {
            return Err(lack);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// A process that is killed when it is dropped, and when the thread that spawned it ends in any other way.
#[derive(Debug)]
struct Daemon(Child);

impl Daemon {
    /// In a process group of its own: what is typed at a terminal is not for it.
    fn spawn(command: &Command) -> Result<Self> {
        let mut bound = Command::new("setpriv");
        bound.args(["--pdeathsig", "KILL", "--"]);
        bound.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => bound.env(name, value),
                None => bound.env_remove(name),
            };
        }
        let spawned = bound.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        spawned.map(Self).map_err(|error| cannot_run(&bound, &error))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It fails only for a process that has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that finds the cluster in `folder`.
fn command(folder: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("CEPH_CONF", folder.join("ceph.conf")).env_remove("CEPH_ARGS").env("LC_ALL", "C");
    command
}

/// The output of a program that must succeed.
fn run(command: &mut Command) -> Result<String> {
    let output = output_within(command, READY)?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(said(&output.stdout));
    }
    let errors = said(&output.stderr);
    let last = errors.lines().rfind(|line| !line.trim().is_empty());
    let program = command.get_program().display();
    Err(format!("{program} failed: {}", last.unwrap_or("it says nothing").trim()))
}

/// The output of a program that must end in time. It may say little: a pipe holds it meanwhile.
fn output_within(command: &mut Command, time: Duration) -> Result<Output> {
    command.stdin(Stdio::null());
    let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| cannot_run(command, &error))?;
    let deadline = Instant::now() + time;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            let program = command.get_program().display();
            return Err(format!("{program} does not end; its cluster may not have got ready"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output();
    output.map_err(|error| cannot_run(command, &error))
}

fn cannot_run(command: &Command, error: &std::io::Error) -> String {
    format!("cannot run {}: {error}", command.get_program().display())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// A port that nobody listens on, and nobody gets before the monitor does: below those that the system gives out, at
/// another place in each process, and another for each cluster of it.
fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let place = std::process::id() % 2000 * 10;
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let ports = (0..10).filter_map(|_| {
        let more = NEXT.fetch_add(1, Ordering::Relaxed) % 10;
        u16::try_from(10_000 + place + more).ok()
    });
    let mut free = ports.filter(is_free);
    free.next().ok_or_else(|| "no port is free".to_owned())
}

fn uuid() -> Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/uuid");
    Ok(text.map_err(|error| error.to_string())?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_does_not_end_is_ended_and_named() {
        let mut command = Command::new("sleep");
        let ended = output_within(command.arg("1000"), Duration::from_millis(50));
        let said = ended.expect_err("it sleeps");
        assert!(said.starts_with("sleep does not end"), "{said}");
        let mut command = Command::new("echo");
        let ended = output_within(command.arg("word"), READY).expect("it ends");
        assert_eq!(ended.stdout, b"word\n");
    }
}
