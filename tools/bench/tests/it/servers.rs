//! Plans that start servers and other programs: a whole report or none, and nothing left behind.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use cryptline_peers::BackgroundProgram;

use super::*;

const QSD: &str = "qemu-storage-daemon";
/// As little as can be: numbers of no worth, but numbers.
const QUICK: [&str; 3] = ["--size=16M", "--seconds=0.02", "--rounds=1"];
/// Options for what cryptline does alone, where nothing can be mounted either.
const GUEST: [&str; 2] = ["--fronts=vhost-user", "--no-pin"];

/// A plan of servers with its files in `dir`.
fn of_servers(plan: &str, dir: &Path, program: &Path) -> Command {
    let mut command = bench([plan]);
    command.args(QUICK).arg("--dir").arg(dir).arg("--program").arg(program);
    command
}

#[track_caller]
fn report(command: &mut Command) -> Value {
    let run = peer::run(command.arg("--json=-"), TIMEOUT).success();
    let json = serde_json::from_str(&run.stdout_text()).expect("JSON");
    has_every_figure(&json);
    json
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).expect("a folder").count() == 0
}

/// Does a test with the program that is measured and a folder, where all of `needed` is there. Nothing is left in that.
#[track_caller]
fn in_folder<const N: usize>(needed: [&str; N], test: impl FnOnce(&Path, &Path)) {
    let (Some(program), Some(_)) = (program(), peer::require_all(needed)) else {
        return;
    };
    let dir = folder();
    test(&program, dir.path());
    assert!(is_empty(dir.path()), "something was left behind");
}

/// A program called `name` in `folder` that does what `script` says.
fn fake(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("room");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
}

/// Every row says who did what how fast, and all have the same contents.
#[track_caller]
fn check_rows(json: &Value, count: usize) {
    let rows = array(json, "rows");
    assert_eq!(rows.len(), count);
    let mut sums = BTreeSet::new();
    for row in rows {
        is_number(&row["bytes_per_second"]);
        // The cipher alone knows of no requests.
        if row["server"].is_string() {
            is_number(&row["latency"]["p99_us"]);
        }
        assert_eq!(array(row, "samples").len(), 1);
        sums.extend(row["sha256"].as_str());
    }
    assert_eq!(sums.len(), 1);
}

#[test]
fn doors_without_peers_has_the_figures_of_our_own_and_names_what_is_missing() {
    in_folder([], |program, dir| {
        let json = report(of_servers("doors", dir, program).args(GUEST).env("PATH", ""));
        check_rows(&json, 9);
        for name in figures_of("doors") {
            let figure = figure(&json, &name);
            let note = figure["note"].as_str().expect("a note");
            if name.contains("fuse_") || name.contains("_nbd_") {
                assert!(note.contains("--fronts"), "{note}");
            } else if name.contains("_qsd_") {
                assert!(note.contains("qemu-system-common"), "{note}");
            } else {
                assert!(figure["value"].is_f64(), "{figure}");
                continue;
            }
            assert_eq!((&figure["value"], &figure["met"]), (&Value::Null, &Value::Null));
        }
        let warnings = json["warnings"].to_string();
        assert!(warnings.contains("qemu-storage-daemon (package qemu-system-common) is not installed"), "{warnings}");
        assert!(!warnings.contains("--fronts"), "{warnings}");
    });
}

#[test]
fn peers_gives_the_figures_of_our_own_without_others() {
    in_folder(["fio"], |program, dir| {
        let ours =
            ["--servers=cryptline,cryptline-plain,bare-cipher", "--jobs=4k-randread-qd32,1m-write-qd4", "--no-pin"];
        let json = report(of_servers("peers", dir, program).args(ours));
        check_rows(&json, 3 * 2);
        for load in ["4k_qd32", "1m_write"] {
            is_number(&figure(&json, &format!("of_model_nbd_{load}"))["value"]);
        }
        is_number(&figure(&json, "encrypted_over_plain_nbd_4k")["value"]);
        is_number(&figure(&json, "encrypted_over_plain_nbd_1m_write")["value"]);
        for name in figures_of("peers").iter().filter(|name| name.starts_with("over_") || name.starts_with("cpu_")) {
            let figure = figure(&json, name);
            assert_eq!(figure["value"], Value::Null);
            assert!(figure["note"].as_str().expect("why").starts_with("needs "));
        }
    });
}

#[test]
fn missing_peers_are_named_with_their_packages_and_nothing_is_measured() {
    in_folder([], |program, dir| {
        let run = peer::run(of_servers("peers", dir, program).arg("--no-pin").env("PATH", ""), TIMEOUT);
        let run = run.exited_with(1);
        for part in [
            "qemu-nbd (package qemu-utils)",
            "qemu-storage-daemon (package qemu-system-common)",
            "nbdkit (package nbdkit)",
            "fio (package fio)",
            "leave it out by --servers",
        ] {
            assert!(run.stderr_text().contains(part), "no {part} in: {run}");
        }
        let pinned = peer::run(of_servers("doors", dir, program).env("PATH", ""), TIMEOUT);
        // With one processor nothing is pinned, and then this is no mistake.
        if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
            refused(pinned, "taskset (package util-linux)");
        }
        let mut alone = bench(["rbd"]);
        refused(peer::run(alone.env("PATH", ""), TIMEOUT), "ceph-mon, ceph-osd and ceph-common");
    });
}

#[test]
fn a_peer_that_fails_or_lies_is_found_before_anything_is_measured() {
    in_folder([], |program, dir| {
        let bin = folder();
        let run = || peer::run(of_servers("doors", dir, program).args(GUEST).env("PATH", bin.path()), TIMEOUT);
        fake(bin.path(), QSD, "echo 'qsd: no such thing' >&2; exit 3");
        refused(run(), "qsd, vhost-user: ended with exit status: 3; it says: qsd: no such thing");
        // Serves noise of the right size.
        let script = format!(
            "for word; do case $word in *addr.path=*) place=${{word#*addr.path=}}; place=${{place%%,*}};; esac; done\nexec '{}' vhost-user ram:16M --socket-path \"$place\"",
            program.display()
        );
        fake(bin.path(), QSD, &script);
        let said = run().exited_with(1).stderr_text();
        assert!(said.contains("qsd, vhost-user: ") && said.contains("wrong data at byte "), "{said}");
    });
}

#[test]
fn a_server_of_nbd_with_other_contents_is_found_before_anything_is_measured() {
    let (Some(program), Some(fio)) = (program(), peer::require("fio")) else {
        return;
    };
    let (dir, bin) = (folder(), folder());
    let script = format!(
        "for word; do case $word in --socket=*) socket=${{word#--socket=}};; esac; done\nexec '{}' serve ram:16M --unix \"$socket\"",
        program.display()
    );
    fake(bin.path(), "qemu-nbd", &script);
    fake(bin.path(), "fio", &format!("exec '{}' \"$@\"", fio.path().display()));
    let mut command = of_servers("peers", dir.path(), &program);
    command.args(["--servers=cryptline,qemu-nbd", "--no-pin"]).env("PATH", bin.path());
    refused(peer::run(&mut command, TIMEOUT), "qemu-nbd gives other bytes than were written");
    assert!(is_empty(dir.path()));
}

#[test]
fn a_signal_ends_the_servers_and_leaves_nothing_behind() {
    in_folder([], |program, dir| {
        let mut command = bench(["doors", "--size=16M", "--rounds=10000", "--dir"]);
        command.arg(dir).args(GUEST).arg("--program").arg(program).env("PATH", "");
        let mut process = BackgroundProgram::spawn(&mut command);
        let is_serving = || {
            let inside = fs::read_dir(dir).expect("a folder").next()?.ok()?;
            inside.path().join("socket").exists().then_some(())
        };
        while is_serving().is_none() {
            assert!(process.wait(Duration::from_millis(5)).is_none(), "it ended");
        }
        let run = process.stop().exited_with(1);
        assert!(run.stderr_text().contains("stopped by a signal"), "{run}");
    });
}

#[test]
fn images_of_our_own_are_measured_where_nothing_else_is_installed() {
    in_folder([], |program, dir| {
        let mut command = bench(["images", "--size=4M", "--rounds=1", "--dir"]);
        command.arg(dir).arg("--program").arg(program).env("PATH", dir);
        let json = report(&mut command);
        for figure in array(&json, "figures") {
            let name = figure["name"].as_str().expect("a name");
            assert_eq!(figure["value"].is_null(), !name.starts_with("sparse"), "{figure}");
        }
        // A file of holes has the speed of its data.
        let holes = array(&json, "rows").iter().find(|row| row["name"].as_str().is_some_and(|it| it.contains("holes")));
        let [rate, seconds] =
            [&holes.expect("a row")["bytes_per_second"], &figure(&json, "sparse_copy_seconds")["value"]]
                .map(|it| it.as_f64().expect("a number"));
        assert!((rate * seconds / f64::from(100 << 20) - 1.0).abs() < 1e-6, "{rate} {seconds}");
        let warnings = json["warnings"].to_string();
        for package in ["coreutils", "cryptsetup-bin", "libnbd-bin", "qemu-utils"] {
            assert!(warnings.contains(package), "{warnings}");
        }
    });
}

#[test]
fn nightly_peers_gives_every_figure_beside_every_peer() {
    in_folder(["fio", "nbdkit", "qemu-nbd", QSD], |program, dir| {
        let mut command = of_servers("peers", dir, program);
        let json = report(&mut command);
        check_rows(&json, 36);
        for name in figures_of("peers") {
            let figure = figure(&json, &name);
            // In so short a time a server may use no whole tick of a processor.
            assert!(figure["value"].as_f64().is_some_and(|value| value > 0.0) || name.starts_with("cpu_"), "{figure}");
            // One short round on a small disk is no proof of anything.
            assert_eq!((&figure["goal"], &figure["met"]), (&Value::Null, &Value::Null));
        }
        let commands = json["commands"].to_string();
        for part in ["qemu-nbd --persistent", "type=nbd", "--filter=luks nbd socket=", "null size=", "--ioengine=nbd"] {
            assert!(commands.contains(part), "no {part} in {commands}");
        }
    });
}

#[test]
fn nightly_doors_gives_every_figure_beside_its_peer() {
    in_folder([QSD, "fio"], |program, dir| {
        if let Err(error) = fs::File::options().read(true).write(true).open("/dev/fuse") {
            return peer::skip(&format!("/dev/fuse cannot be used: {error}"));
        }
        let json = report(&mut of_servers("doors", dir, program));
        check_rows(&json, 19);
        for name in figures_of("doors").iter().filter(|name| !name.contains("uring")) {
            let figure = figure(&json, name);
            is_number(&figure["value"]);
            assert_eq!((&figure["goal"], &figure["met"]), (&Value::Null, &Value::Null));
        }
    });
}

#[test]
fn nightly_images_gives_every_figure_beside_every_program() {
    in_folder(["nbdcopy", "qemu-img", "cryptsetup"], |program, dir| {
        let mut command = bench(["images", "--size=4M", "--rounds=1", "--dir"]);
        let json = report(command.arg(dir).arg("--program").arg(program));
        let commands = json["commands"].to_string();
        assert!(commands.contains("qemu-img create") && commands.contains("qemu-img convert -n"), "{commands}");
        for figure in array(&json, "figures") {
            // cryptsetup reencrypts as root only.
            let may_lack = figure["name"] == "create_from_over_cryptsetup_reencrypt"
                && json["warnings"].to_string().contains("root only");
            assert!(figure["value"].as_f64().is_some_and(|it| it > 0.0) || may_lack, "{figure}");
            assert!(figure["goal"].is_null(), "4 MiB are too little: {figure}");
        }
    });
}

#[test]
fn nightly_rbd_measures_each_way_with_a_cluster_of_its_own() {
    if peer::require_all(["ceph-authtool", "ceph-mon", "ceph-osd", "ceph", "rbd"]).is_none() {
        return;
    }
    let folder = folder();
    let mut command = bench(["rbd", "--size=16M", "--rounds=1", "--seconds=0.05"]);
    let json = report(command.env("TMPDIR", folder.path()));
    assert_eq!(array(&json, "rows").len(), 15);
    for figure in array(&json, "figures") {
        // In so short a time, noise can hide what is added.
        let may_be_noise = figure["name"] == "rbd_added_cpu_over_librbd_luks2";
        assert!(may_be_noise || figure["value"].as_f64().is_some_and(|it| it > 0.0), "{figure}");
        assert!(figure["goal"].is_null(), "16 MiB are too little: {figure}");
        // No speed, so it is the same however short the load is.
        let is_space = figure["name"] == "rbd_used_over_live_after_fstrim";
        assert!(!is_space || figure["value"].as_f64().is_some_and(|it| it <= 1.1), "{figure}");
    }
    assert!(is_empty(folder.path()), "the cluster's folder is left");
}

#[test]
fn scale_tells_what_exports_and_clients_hold() {
    in_folder(["fio"], |program, dir| {
        let json = report(&mut of_servers("scale", dir, program));
        let streams: Vec<_> = array(&json, "rows").iter().map(|row| row["streams"].as_u64()).collect();
        // Connections, then the queues of one machine.
        assert_eq!(streams, [1, 2, 4, 8, 1, 1, 1].map(Some));
        is_number(&figure(&json, "vhost_queues_4_over_1")["value"]);
        for (name, value) in [("possible_client_descriptors", 0.0), ("export_descriptors", 2.0)] {
            assert_eq!(figure(&json, name)["value"], value, "{json}");
        }
        for name in ["idle_mib", "ready_256_exports_ms", "idle_client_kib", "sparse_ready_over_small", "opening_ms"] {
            is_number(&figure(&json, name)["value"]);
        }
    });
}

/// The options of a quick `busy`, of our own servers alone.
const BUSY: [&str; 2] = ["--busy=2", "--servers=inline,queue"];

#[test]
fn busy_measures_our_own_modes_beside_busy_processes_and_says_what_it_could_not() {
    in_folder(["fio"], |program, dir| {
        let json = report(of_servers("busy", dir, program).args(BUSY));
        let rows = array(&json, "rows");
        let limited = rows.iter().filter(|row| !row["quota"].is_null()).count();
        check_rows(&json, 2 + limited);
        assert!(rows.iter().all(|row| row["hogs"] == 2 && row["block"] == 4096 && row["depth"] == 8), "{json}");
        for name in figures_of("busy") {
            let figure = figure(&json, &name);
            let note = figure["note"].as_str().expect("a note");
            let is_limited = name.starts_with("busy_20") || name.starts_with("busy_50");
            if is_limited && limited == 0 {
                assert!(note.starts_with("could not be measured: no control group can be made: "), "{note}");
                assert!(json["warnings"].to_string().contains("no control group can be made"), "{json}");
            } else if name.ends_with("inline_over_queue") {
                is_number(&figure["value"]);
                continue;
            } else {
                assert!(note.starts_with("needs "), "{note}");
            }
            assert_eq!((&figure["value"], &figure["goal"], &figure["met"]), (&Value::Null, &Value::Null, &Value::Null));
        }
        if limited > 0 {
            let quotas: Vec<_> = rows.iter().filter_map(|row| row["quota"].as_f64()).collect();
            assert_eq!(quotas, [0.2, 0.2, 0.5, 0.5]);
            let commands = array(&json, "commands").iter().filter_map(Value::as_str);
            let words: Vec<&str> = commands.flat_map(|line| line.split(' ')).collect();
            let groups: BTreeSet<_> = words.iter().filter(|word| word.ends_with("/cgroup.procs")).collect();
            // Of servers by their limits, and of fio.
            assert_eq!(groups.len(), 4, "{json}");
            assert!(groups.iter().all(|entry| !Path::new(entry).exists()), "{groups:?} are left");
        }
    });
}

#[test]
fn busy_names_peers_that_are_missing() {
    in_folder([], |program, dir| {
        let run = peer::run(of_servers("busy", dir, program).env("PATH", ""), TIMEOUT).exited_with(1);
        for part in ["fio (package fio)", "nbdkit (package nbdkit)", "qemu-nbd (package qemu-utils)", "--servers"] {
            assert!(run.stderr_text().contains(part), "no {part} in: {run}");
        }
    });
}

/// Busy processes of a bench, in /proc.
fn hogs_of(parent: u32) -> Vec<PathBuf> {
    let line = format!("\0hog\0{parent}\0");
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let has =
        |path: &PathBuf| fs::read(path.join("cmdline")).is_ok_and(|it| String::from_utf8_lossy(&it).contains(&line));
    processes.map(|entry| entry.path()).filter(has).collect()
}

#[test]
fn busy_processes_die_with_a_bench_that_is_killed() {
    let (Some(program), Some(_)) = (program(), peer::require("fio")) else {
        return;
    };
    let dir = folder();
    let mut command = bench(["busy", "--size=16M", "--rounds=10000", "--seconds=0.5", "--dir"]);
    command.arg(dir.path()).arg("--program").arg(&program).args(BUSY).stdin(Stdio::null());
    let mut bench = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    while hogs_of(bench.id()).len() < 2 {
        assert!(bench.try_wait().expect("a child").is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    bench.kill().expect("it runs");
    while !hogs_of(bench.id()).is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    bench.wait().expect("it was killed");
}

#[test]
fn nightly_busy_gives_every_figure_beside_every_peer() {
    in_folder(["fio", "nbdkit", "qemu-nbd"], |program, dir| {
        let json = report(&mut of_servers("busy", dir, program));
        let is_limited = array(&json, "rows").iter().any(|row| !row["quota"].is_null());
        check_rows(&json, if is_limited { 15 } else { 5 });
        for name in figures_of("busy").iter().filter(|name| is_limited || !name.contains("0_p99")) {
            let figure = figure(&json, name);
            is_number(&figure["value"]);
            // One short round on a small disk is no proof of anything.
            assert_eq!((&figure["goal"], &figure["met"]), (&Value::Null, &Value::Null));
        }
    });
}
