//! Rights that a server gives up before its first client, and its service all the same.

use crate::server;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use crate::server::{Disk, READY, Server, cryptline, noise, run, socket_of, text, value, wait_until};
use cryptline_testkit::peer::{self, BackgroundProgram, Run};
use rustix::process::geteuid;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

/// A user who owns nothing.
const NOBODY: u32 = 65534;
/// Attempts of `--sandbox-probe`.
const TRIED: [&str; 14] = [
    "open",
    "open-directory",
    "open-for-writing",
    "open-own-memory",
    "execve",
    "fork",
    "socket-tcp",
    "socket-unix",
    "ptrace",
    "unshare",
    "kill",
    "executable-memory",
    "io_uring-open",
    "io_uring-connect",
];

/// Tells if this kernel has all of it; else the test does not apply.
fn is_complete() -> bool {
    let run = run(["serve", "ram:1M", "--sandbox=on", "--run", "true"]);
    let complete = run.status.success();
    if !complete {
        peer::skip(&format!("no whole sandbox here: {}", run.stderr_text()));
    }
    complete
}

fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        peer::skip("only root can become another user");
    }
    is_root
}

/// Returns what the probe of a server said, by thread and attempt.
#[track_caller]
fn probed(run: &Run) -> BTreeMap<String, String> {
    let said = run.stderr_text();
    let lines = said.lines().filter_map(|line| {
        let (what, how) = line.strip_prefix("cryptline: probe: ")?.rsplit_once(": ")?;
        Some((what.to_owned(), how.to_owned()))
    });
    let lines: BTreeMap<_, _> = lines.collect();
    for thread in ["old", "new"] {
        for what in TRIED {
            let name = format!("{thread} thread: {what}");
            assert!(lines.contains_key(&name), "{name} was not tried: {run}");
        }
    }
    assert_eq!(lines.len(), 2 * TRIED.len(), "{run}");
    lines
}

/// A field of `/proc/PID/task/TID/status` for every thread of a server.
fn status_of_threads(process: &BackgroundProgram, key: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    let field = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim_start_matches(':').trim().to_owned()
    };
    statuses.map(field).collect()
}

#[track_caller]
fn all_threads_have(process: &BackgroundProgram, key: &str, expected: &str) {
    let found = status_of_threads(process, key);
    assert!(!found.is_empty());
    let equal = found.iter().all(|value| value == expected);
    assert!(equal, "{key} is not {expected} everywhere: {found:?}");
}

#[test]
fn files_programs_and_sockets_are_refused_to_every_thread() {
    if !is_complete() {
        return;
    }
    for io in ["--io=auto", "--io=preadv"] {
        let server = Server::start(["ram:4M", "--sandbox=on", "--sandbox-probe", io]);
        let none = "0000000000000000";
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            all_threads_have(&server.process, set, none);
        }
        if geteuid().is_root() {
            all_threads_have(&server.process, "CapBnd", none);
        }
        all_threads_have(&server.process, "NoNewPrivs", "1");
        all_threads_have(&server.process, "Seccomp", "2");
        let ended = server.stop();
        for (what, how) in probed(&ended) {
            assert!(how.starts_with("refused"), "{io}: {what}: {how}");
        }
    }
}

#[test]
fn without_a_sandbox_the_same_attempts_are_allowed() {
    let server = Server::start(["ram:4M", "--sandbox=off", "--sandbox-probe"]);
    let ready = value(&server.process.stdout_text(), "ready");
    let (_, said) = ready.split_once("; sandbox: ").unwrap();
    assert_eq!(said, "off (--sandbox=off)");
    let probed = probed(&server.stop());
    for what in ["open", "execve", "fork", "socket-tcp", "socket-unix", "ptrace"] {
        for thread in ["old", "new"] {
            let how = &probed[&format!("{thread} thread: {what}")];
            assert!(how.starts_with("allowed"), "{what}: {how}");
        }
    }
}

#[test]
fn every_way_of_io_and_dispatch_serves_many_clients_under_it() {
    let Some([cryptsetup, nbdcopy, nbdinfo]) = peer::require_all(["cryptsetup", "nbdcopy", "nbdinfo"]) else {
        return;
    };
    if !is_complete() {
        return;
    }
    let disk = Disk::new(&cryptsetup, "luks2");
    let (socket, pidfile) = (disk.path("socket"), disk.path("pid"));
    let stats = disk.path("stats");
    let ways: [&[&str]; 5] = [
        &[],
        &["--io=preadv"],
        &["--direct=off"],
        &["--dispatch=queue"],
        &["--dispatch=queue", "--io=preadv", "--direct=off"],
    ];
    for (index, options) in ways.into_iter().enumerate() {
        let clear = noise(server::SIZE + index)[index..].to_vec();
        fs::write(&disk.clear, &clear).unwrap();
        let arguments = disk.arguments().into_iter().chain([
            "--sandbox=on",
            "--max-connections=5",
            "-U",
            &socket,
            "-P",
            &pidfile,
            "--stats",
            &stats,
        ]);
        let server = Server::start(arguments.chain(options.iter().copied()));
        let ready = value(&server.process.stdout_text(), "ready");
        let (_, said) = ready.split_once("; sandbox: ").unwrap();
        assert!(said.contains("landlock (version ") && said.ends_with("seccomp"), "{said}");
        for _ in 0..2 {
            let copy = disk.path("copy");
            copy_in_and_out(&nbdcopy, &disk.clear, &server.uri, &copy);
            assert!(fs::read(&copy).unwrap() == clear, "{options:?}: the copy differs");
        }
        for _ in 0..12 {
            nbdinfo.run(["--size", &server.uri]).success();
        }
        let line = first_line_of(Path::new(&stats));
        assert!(line.contains("\"exports\""), "{line}");
        let ended = server.stop();
        assert_eq!(ended.stderr_text(), "", "{options:?}");
        for made in [&socket, &pidfile, &stats] {
            assert!(!Path::new(made).exists(), "{options:?}: {made} is left");
        }
    }
    // And it was encrypted all the while.
    let image = fs::read(&disk.image).unwrap();
    let clear = fs::read(&disk.clear).unwrap();
    assert!(!image.windows(512).step_by(512).any(|sector| sector == &clear[..512]));
}

/// With as many clients as there may be.
#[track_caller]
fn copy_in_and_out(nbdcopy: &peer::Peer, clear: &str, uri: &str, copy: &str) {
    for [from, to] in [[clear, uri], [uri, copy]] {
        let many = ["--connections=4", "--requests=16", "--flush"];
        nbdcopy.run(many.into_iter().chain([from, to])).success();
    }
}

/// The first line that somebody hears who connects.
fn first_line_of(socket: &Path) -> String {
    use std::io::{BufRead, BufReader};
    let stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(READY)).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn another_user_serves_an_image_that_only_root_can_open() {
    let Some([cryptsetup, nbdcopy]) = peer::require_all(["cryptsetup", "nbdcopy"]) else {
        return;
    };
    if !is_root() || !is_complete() {
        return;
    }
    let disk = Disk::new(&cryptsetup, "luks2");
    fs::set_permissions(&disk.image, fs::Permissions::from_mode(0o600)).unwrap();
    let runtime = disk.folder.path().join("run");
    fs::create_dir(&runtime).unwrap();
    fs::set_permissions(disk.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&disk.key, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&runtime, Some(NOBODY), Some(NOBODY)).unwrap();
    let (socket, pidfile) = (text(&runtime.join("s")), text(&runtime.join("pid")));
    for sandbox in ["--sandbox=on", "--sandbox=off"] {
        let arguments =
            disk.arguments().into_iter().chain([sandbox, "-u", "65534", "-g", "65534", "-U", &socket, "-P", &pidfile]);
        let server = Server::start(arguments);
        let ids = [NOBODY; 4].map(|id| id.to_string()).join("\t");
        all_threads_have(&server.process, "Uid", &ids);
        all_threads_have(&server.process, "Gid", &ids);
        all_threads_have(&server.process, "Groups", "");
        all_threads_have(&server.process, "CapEff", "0000000000000000");
        all_threads_have(&server.process, "CapPrm", "0000000000000000");
        // New clients need the file again, which this user may not open.
        for _ in 0..3 {
            nbdcopy.run(["--flush", &disk.clear, &server.uri]).success();
        }
        let copy = disk.path("copy");
        nbdcopy.run([&server.uri, &copy]).success();
        assert!(fs::read(&copy).unwrap() == fs::read(&disk.clear).unwrap());
        let ended = server.stop();
        assert_eq!(ended.stderr_text(), "");
        assert!(!Path::new(&socket).exists() && !Path::new(&pidfile).exists());
    }
}

#[test]
fn another_user_has_a_private_socket_and_ends_with_its_parent() {
    let Some(nbdinfo) = peer::require("nbdinfo") else {
        return;
    };
    if !is_root() {
        return;
    }
    let runtime = tempfile::tempdir().unwrap();
    let mut command = cryptline(["serve", "ram:1M", "--user=nobody"]);
    command.env("XDG_RUNTIME_DIR", runtime.path());
    let server = Server::spawn(&mut command);
    let folder = socket_of(&server.uri).parent().unwrap().to_owned();
    nbdinfo.run(["--size", &server.uri]).success();
    assert_eq!(server.stop().stderr_text(), "");
    assert!(!folder.exists());

    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(NOBODY), None).unwrap();
    let socket = folder.path().join("socket");
    // The shell ends as soon as there are clients.
    let script = "\"$0\" serve ram:1M --exit-with-parent -u nobody -U \"$1\" -P \"$1.pid\" >/dev/null 2>&1 &
        while ! test -s \"$1.pid\"; do sleep 0.05; done; sleep 1";
    let mut parent = Command::new("sh");
    parent.args(["-c", script, env!("CARGO_BIN_EXE_cryptline")]).arg(&socket);
    peer::run(&mut parent, READY).success();
    wait_until("the socket is gone", || !socket.exists());
}

/// The program where everybody can run it.
struct Copy(tempfile::TempDir);

impl Copy {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_cryptline"), folder.path().join("program")).unwrap();
        Self(folder)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.0.path().join("program"));
        command.env("LC_ALL", "C").env_remove("XDG_RUNTIME_DIR");
        command
    }
}

#[test]
fn users_without_any_right_are_confined_too() {
    if !is_root() || !is_complete() {
        return;
    }
    let program = Copy::new();
    let mut command = program.command();
    command.args(["serve", "ram:1M", "--sandbox=on", "--sandbox-probe"]);
    let server = Server::spawn(command.uid(NOBODY).gid(NOBODY));
    for (what, how) in probed(&server.stop()) {
        assert!(how.starts_with("refused"), "{what}: {how}");
    }
}

#[test]
fn root_of_a_user_namespace_is_confined_too() {
    if !is_complete() {
        return;
    }
    let works = Command::new("unshare").args(["-U", "-r", "true"]).output();
    if !works.is_ok_and(|output| output.status.success()) {
        peer::skip("no user namespaces here");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-U", "-r", env!("CARGO_BIN_EXE_cryptline")]);
    command.args(["serve", "ram:1M", "--sandbox=on", "--sandbox-probe"]);
    let server = Server::spawn(command.env_remove("XDG_RUNTIME_DIR"));
    for (what, how) in probed(&server.stop()) {
        assert!(how.starts_with("refused"), "{what}: {how}");
    }
}

/// Runs `command` as a container would that forbids these system calls.
#[track_caller]
fn without(calls: &[i64], command: impl FnOnce() -> Run + Send) -> Run {
    let rules = calls.iter().map(|&call| (call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(rustix::io::Errno::PERM.raw_os_error().cast_unsigned());
    let architecture = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    std::thread::scope(|scope| {
        let confined = scope.spawn(move || {
            apply_filter(&filter).unwrap();
            command()
        });
        confined.join().unwrap()
    })
}

#[test]
fn where_parts_are_forbidden_auto_says_which_and_on_refuses() {
    let serve = |sandbox: &'static str| move || run(["serve", "ram:1M", sandbox, "-v", "--run", "true"]);
    let landlock = [libc_numbers::LANDLOCK_CREATE_RULESET, libc_numbers::LANDLOCK_RESTRICT_SELF];
    let said = |run: Run| {
        let text = run.success().stderr_text();
        let line = text.lines().find_map(|line| line.strip_prefix("cryptline: sandbox:"));
        line.unwrap().trim().to_owned()
    };
    let auto = said(without(&landlock, serve("--sandbox=auto")));
    assert!(auto.starts_with("no_new_privs, no capabilities"), "{auto}");
    assert!(auto.contains("; without landlock (the kernel refuses"), "{auto}");
    let on = without(&landlock, serve("--sandbox=on")).exited_with(1);
    assert!(on.stderr_text().contains("no landlock (the kernel refuses"), "{on}");
    assert!(on.stderr_text().contains("use --sandbox=auto"), "{on}");

    let both = [&landlock[..], &[libc_numbers::SECCOMP]].concat();
    let auto = said(without(&both, serve("--sandbox=auto")));
    assert!(auto.contains("without landlock (") && auto.contains(", seccomp ("), "{auto}");
    without(&both, serve("--sandbox=on")).exited_with(1);

    // Nothing at all is asked of the kernel.
    assert_eq!(said(without(&both, serve("--sandbox=off"))), "off (--sandbox=off)");
}

/// Numbers of system calls that all architectures share, or nearly.
mod libc_numbers {
    pub const LANDLOCK_CREATE_RULESET: i64 = 444;
    pub const LANDLOCK_RESTRICT_SELF: i64 = 446;
    #[cfg(target_arch = "x86_64")]
    pub const SECCOMP: i64 = 317;
    #[cfg(not(target_arch = "x86_64"))]
    pub const SECCOMP: i64 = 277;
}

#[test]
fn a_second_signal_ends_the_server_and_removes_what_it_made() {
    if !is_complete() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| text(&folder.path().join(name));
    let (socket, pidfile, started) = (path("socket"), path("pid"), path("started"));
    // The server waits for its command, which does not end when it is asked to.
    let script = format!("trap '' TERM; touch '{started}'; exec sleep 100");
    let arguments = ["serve", "ram:1M", "--sandbox=on", "-U", &socket, "-P", &pidfile];
    let process = BackgroundProgram::spawn(&mut cryptline(arguments.into_iter().chain(["--run", &script])));
    let mut process = process.wait_for_path(Path::new(&started), READY);
    let id = process.id().to_string();
    let kill = |signal: &str| Command::new("kill").args([signal, &id]).output().unwrap();
    kill("-TERM");
    wait_until("a second signal ends it", || {
        kill("-INT");
        process.wait(std::time::Duration::from_millis(20)).is_some()
    });
    let ended = process.collect();
    let signal = ended.status.signal();
    assert!(signal == Some(2) || signal == Some(15), "{ended}");
    assert!(!Path::new(&socket).exists() && !Path::new(&pidfile).exists());
}
