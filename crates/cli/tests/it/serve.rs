//! `cryptline serve` as its users and their programs meet it.

use crate::server;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::server::{Disk, READY, SIZE, Server, run, socket_of, text, value};
use cryptline_engine::dispatch::usable_cores;
use cryptline_testkit::peer;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[test]
fn the_default_server_says_what_is_in_use_and_leaves_nothing_behind() {
    let Some([nbdinfo, nbdcopy]) = peer::require_all(["nbdinfo", "nbdcopy"]) else {
        return;
    };
    let server = Server::start([]);
    let report = server.process.stdout_text();
    let socket = socket_of(&server.uri);
    let folder = socket.parent().unwrap().to_owned();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&socket), mode(&folder)), (0o600, 0o700));
    assert!(value(&report, "volume").contains("1 GiB"), "{report}");
    assert_eq!(value(&report, "cipher"), "aes-xts-plain64, 512-bit key, 4096-byte sectors");
    let io = value(&report, "io");
    assert!(io.starts_with("io_uring") || io.starts_with("preadv"), "{report}");
    let dispatch = value(&report, "dispatch");
    assert!(dispatch.starts_with("auto ("), "{report}");
    assert_eq!(value(&report, "medium"), "RAM");
    assert!(!value(&report, "kernel").is_empty());

    let size = nbdinfo.run(["--size", &server.uri]).success();
    assert_eq!(size.stdout_text().trim(), (1u64 << 30).to_string());
    // The lines to paste work as they are, but for the size of the copy.
    for program in ["nbdinfo", "nbdcopy", "qemu-img"] {
        let line = report.lines().find(|line| line.trim().starts_with(program));
        assert!(line.unwrap().contains(&format!("'{}'", server.uri)), "{report}");
    }
    nbdcopy.run([&server.uri, "null:"]).success();
    let ended = server.stop();
    assert_eq!(ended.stderr_text(), "");
    assert!(!folder.exists());
}

#[test]
fn default_polls_with_io_uring_and_two_processors_and_never_with_one() {
    const NO_RING: &str = "never (it needs io_uring)";
    let poll = |options: &[&str]| value(&said(options), "poll").to_owned();
    assert_eq!(poll(&["--poll-us=0"]), "never");
    assert_eq!(poll(&["--io=preadv"]), NO_RING);
    assert_eq!(poll(&["--poll-us=50", "--io=preadv"]), NO_RING);
    let all = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap());
    // Of this thread alone, and of the servers that it starts.
    sched_setaffinity(None, &one).unwrap();
    let (default, asked) = (poll(&[]), poll(&["--poll-us=50"]));
    sched_setaffinity(None, &all).unwrap();
    let has_ring = asked != NO_RING;
    assert_eq!(asked, if has_ring { "50 µs" } else { NO_RING });
    // Its clients may be on the others, if the machine has others and need not save power.
    let one_of = if has_ring {
        &["up to 100 µs while it pays off", "never (one processor)", "never (on battery)"][..]
    } else {
        &[NO_RING]
    };
    assert!(one_of.contains(&&*default), "{default}");
    if has_ring && usable_cores() >= 2.0 {
        // A busy machine may give the measurement no time.
        let mut tries = (0..5).map(|_| poll(&[]));
        let known = tries.find(|said| !said.contains("could not be measured"));
        let Some(known) = known else { return };
        let is_suitable = known.starts_with("up to ") && known.contains("while it pays off");
        assert!(is_suitable || known == "never (on battery)", "{known}");
    }
}

/// What a server of a RAM disk says when it starts.
fn said(options: &[&str]) -> String {
    let server = Server::start(["ram:1M"].into_iter().chain(options.iter().copied()));
    let report = server.process.stdout_text();
    server.stop();
    report
}

#[test]
fn a_luks2_disk_is_copied_in_and_out_byte_by_byte() {
    let Some([cryptsetup, nbdcopy]) = peer::require_all(["cryptsetup", "nbdcopy"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let server = Server::start(disk.arguments());
    nbdcopy.run(["--flush", &disk.clear, &server.uri]).success();
    server.stop();
    // Another process, with the other way of I/O.
    let server = Server::start(disk.arguments().into_iter().chain(["-r", "--io=preadv"]));
    assert!(value(&server.process.stdout_text(), "io").starts_with("preadv/pwritev"));
    let copy = disk.path("copy");
    nbdcopy.run([&server.uri, &copy]).success();
    server.stop();
    let (clear, copy) = (fs::read(&disk.clear).unwrap(), fs::read(copy).unwrap());
    assert!(clear == copy, "the copy differs");
    let image = fs::read(&disk.image).unwrap();
    assert!(!image.windows(512).step_by(512).any(|sector| sector == &clear[..512]));
}

#[test]
fn qemu_reads_from_a_luks1_disk_what_was_written_through_us() {
    let peers = ["cryptsetup", "nbdcopy", "qemu-img"];
    let Some([cryptsetup, nbdcopy, qemu_img]) = peer::require_all(peers) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks1");
    let server = Server::start(disk.arguments());
    nbdcopy.run(["--flush", &disk.clear, &server.uri]).success();
    server.stop();
    let secret = format!("secret,id=key,file={}", disk.key);
    let encrypted = format!("driver=luks,key-secret=key,file.filename={}", disk.image);
    let clear = format!("driver=raw,file.filename={}", disk.clear);
    let compare = ["compare", "--object", &secret, "--image-opts", &encrypted, &clear];
    qemu_img.run(compare).success();
}

#[test]
fn connections_need_neither_header_nor_key_again() {
    let Some([cryptsetup, nbdinfo]) = peer::require_all(["cryptsetup", "nbdinfo"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let server = Server::start(disk.arguments());
    // Whoever derived the key again now would fail.
    fs::remove_file(&disk.key).unwrap();
    let mut image = fs::File::options().write(true).open(&disk.image).unwrap();
    image.seek(SeekFrom::Start(0)).unwrap();
    image.write_all(&vec![0; 1 << 20]).unwrap();
    for _ in 0..5 {
        nbdinfo.run(["--size", &server.uri]).success();
    }
    server.stop();
}

#[test]
fn exports_have_the_names_that_were_asked_for_and_their_files_names() {
    let Some([cryptsetup, nbdinfo]) = peer::require_all(["cryptsetup", "nbdinfo"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let second = disk.path("second.img");
    fs::copy(&disk.image, &second).unwrap();
    let names = ["--export-name=first one", "--description=one"];
    let arguments = disk.arguments().into_iter().chain([&*second]);
    let server = Server::start(arguments.chain(names));
    let list = nbdinfo.run(["--list", &server.uri]).success().stdout_text();
    for name in ["export=\"first one\":", "export=\"second.img\":"] {
        assert!(list.contains(name), "{list}");
    }
    assert!(list.contains("description: one"), "{list}");
    let report = server.process.stdout_text();
    let uris: Vec<_> = report.lines().filter(|line| line.starts_with("uri:")).collect();
    assert_eq!(uris.len(), 2, "{report}");
    for uri in uris {
        let uri = uri.trim_start_matches("uri:").trim();
        let run = nbdinfo.run(["--size", uri]).success();
        assert_eq!(run.stdout_text().trim(), SIZE.to_string());
    }
    server.stop();
}

#[test]
fn a_read_only_server_takes_no_writes() {
    let peers = ["cryptsetup", "nbdinfo", "nbdcopy"];
    let Some([cryptsetup, nbdinfo, nbdcopy]) = peer::require_all(peers) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let before = fs::read(&disk.image).unwrap();
    let server = Server::start(disk.arguments().into_iter().chain(["--read-only"]));
    nbdinfo.run(["--is", "read-only", &server.uri]).success();
    let refused = nbdcopy.run([&disk.clear, &server.uri]);
    assert!(!refused.status.success(), "{refused}");
    assert!(fs::read(&disk.image).unwrap() == before);
    server.stop();
}

#[test]
fn tcp_is_on_loopback_unless_told_otherwise_and_then_warned_of() {
    let Some(nbdinfo) = peer::require("nbdinfo") else {
        return;
    };
    let server = Server::start(["ram:1M", "--port=0", "--unix=-"]);
    let report = server.process.stdout_text();
    let tcp = report.lines().find(|line| line.contains("nbd://")).unwrap();
    let tcp = tcp.trim_start_matches("uri:").trim();
    assert!(tcp.starts_with("nbd://127.0.0.1:"), "{report}");
    nbdinfo.run(["--size", tcp]).success();
    nbdinfo.run(["--size", &server.uri]).success();
    assert_eq!(server.stop().stderr_text(), "");

    let server = Server::start(["ram:1M", "--port=0", "--bind=0.0.0.0"]);
    nbdinfo.run(["--size", &server.uri]).success();
    let said = server.stop().stderr_text();
    assert!(said.contains("warning: other machines can connect"), "{said}");
}

#[test]
fn where_io_uring_has_no_memory_the_server_says_so_and_works() {
    let Some(nbdcopy) = peer::require("nbdcopy") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let clear = text(&folder.path().join("clear"));
    fs::write(&clear, server::noise(SIZE)).unwrap();
    let size = format!("ram:{SIZE}");
    let (mut command, _program) = unprivileged(&["prlimit", "--memlock=16384"]);
    let server = Server::spawn(command.args(["serve", &size, "-U", "-"]));
    let io = value(&server.process.stdout_text(), "io");
    // Kernels differ in what they count; some places forbid io_uring whatever the memory.
    let why = ["ulimit -l", "io_uring is not available"];
    assert!(why.iter().any(|why| io.contains(why)), "{io}");
    nbdcopy.run([&clear, &server.uri]).success();
    let copy = text(&folder.path().join("copy"));
    nbdcopy.run([&server.uri, &copy]).success();
    assert!(fs::read(&clear).unwrap() == fs::read(copy).unwrap());
    server.stop();
}

#[test]
fn keys_that_could_not_be_locked_are_told_once_whether_the_key_is_right_or_wrong() {
    let (mut command, folder) = unprivileged(&["prlimit", "--memlock=0:0"]);
    let (image, key) = (text(&folder.path().join("image")), text(&folder.path().join("key")));
    fs::write(&key, "x").unwrap();
    let cheap = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
    let made = ["create", &image, "--size=20M", "--key-file", &key];
    run(made.into_iter().chain(cheap)).success();
    for path in [&image, &key] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    command.args(["open", "--check", &image, "--key-file"]);
    for (key, code) in [(&key, 0), (&image, 2)] {
        let mut again = Command::new(command.get_program());
        again.args(command.get_args()).arg(key).args(["--keyfile-size=1"]);
        let told = peer::run(&mut again, Duration::from_secs(30)).exited_with(code);
        let said = told.stderr_text();
        assert_eq!(said.matches("keys may be written").count(), 1, "{told}");
    }
}

#[test]
fn what_is_in_the_way_is_exit_code_5_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(&folder.path().join("socket"));
    let server = Server::start(["ram:1M", "--unix", &path]);
    let busy = run(["serve", "ram:1M", "--unix", &path]).exited_with(5);
    assert!(busy.stderr_text().contains("another server listens on"), "{busy}");
    let mut process = server.process;
    process.kill();
    assert!(Path::new(&path).exists(), "a killed server cannot remove its socket");
    Server::start(["ram:1M", "--unix", &path]).stop();

    fs::write(&path, "precious").unwrap();
    let refused = run(["serve", "ram:1M", "--unix", &path]).exited_with(5);
    assert!(refused.stderr_text().contains("is not a socket"), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    run(["serve", "ram:1M", "--unix", &text(folder.path())]).exited_with(5);
}

#[test]
fn two_servers_do_not_open_one_image_for_writing() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let server = Server::start(disk.arguments());
    let arguments = ["serve"].into_iter().chain(disk.arguments());
    let busy = run(arguments).exited_with(5);
    assert!(busy.stderr_text().contains("is in use by another program"), "{busy}");
    server.stop();
}

#[test]
fn a_port_below_1024_without_permission_is_one_clear_line() {
    let start = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if start.is_ok_and(|start| start.trim().parse().is_ok_and(|port: u16| port <= 99)) {
        peer::skip_everywhere("everybody may listen everywhere here: the system has no such refusal to show");
        return;
    }
    let (mut command, _program) = unprivileged(&[]);
    command.args(["serve", "ram:1M", "--port=99"]);
    let refused = peer::run(&mut command, READY).exited_with(1);
    assert_eq!(
        refused.stderr_text(),
        "cryptline: no permission to listen on 127.0.0.1:99; choose a --port from 1024 up\n"
    );
}

/// The program, by way of `wrapper`, as a user without privileges: as nobody when we are root. The
/// folder holds a copy of the program that everybody may run.
fn unprivileged(wrapper: &[&str]) -> (Command, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = text(&folder.path().join("cryptline"));
    fs::copy(env!("CARGO_BIN_EXE_cryptline"), &program).unwrap();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let nobody = nobody.iter().filter(|_| rustix::process::geteuid().is_root());
    let words: Vec<_> = nobody.chain(wrapper).copied().chain([&*program]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir("/");
    (command, folder)
}

#[test]
fn bad_command_lines_are_exit_code_1_and_say_what_to_do() {
    let long = format!("/tmp/{}", "x".repeat(200));
    for (arguments, says) in [
        (&["--dispatch=bogus"][..], "possible values: inline, queue, auto"),
        (&["--dispatch=inline", "--perf-submit_from_crypt_cpus"], "leave one of them out"),
        (&["--read-dispatch=queue", "--perf-no_read_workqueue"], "leave one of them out"),
        (&["--io=bogus"], "possible values: auto, io_uring, preadv"),
        (&["--max-connections=0"], "--max-connections"),
        (&["--port=65536"], "--port"),
        (&["-p0", "-i", "no.such.host.invalid"], "give one with --ip-addr"),
        (&["-p0", "-i", "192.0.2.1"], "is no address of this machine"),
        (&["-e", "a", "-e", "b"], "once for each TARGET"),
        (&["ram:2M", "-e", "a", "-e", "a"], "give each its own name"),
        (&["--unix", &long], "at most 107 bytes"),
        (&["--unix", "/no/such/folder/socket"], "cannot listen on"),
        (&["--pidfile", "/no/such/folder/pid"], "cannot write the pid file"),
        (&["--stats-interval=0", "--stats=/tmp/x"], "from 0.1 to 3600"),
        (&["--delay=read=100"], "ns, us, ms or s"),
        (&["--delay=sync=1ms"], "read, write, flush"),
        (&["--tls=on"], "needs --tls-certificates"),
        (&["--tls-certificates=/tmp"], "give --tls=require"),
        (&["--tls=on", "--tls-certificates=/no/such"], "server-cert.pem"),
        (&["--fork"], "--fork"),
    ] {
        let arguments = ["serve", "ram:1M"].into_iter().chain(arguments.iter().copied());
        let refused = run(arguments).exited_with(1);
        assert!(refused.stderr_text().contains(says), "{says}:\n{refused}");
    }
}

#[test]
fn a_slow_medium_is_said_and_serves_the_same_bytes() {
    let Some([cryptsetup, nbdcopy]) = peer::require_all(["cryptsetup", "nbdcopy"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let medium = "read=50us..200us,write=100us~20us,flush=1ms,parallel=4,seek=100us,rate=1G";
    let slow = [&*format!("--delay={medium}"), "--fault=discard"];
    let server = Server::start(disk.arguments().into_iter().chain(slow));
    let report = server.process.stdout_text();
    assert_eq!(value(&report, "delay"), medium);
    nbdcopy.run(["--flush", &disk.clear, &server.uri]).success();
    server.stop();
    let server = Server::start(disk.arguments());
    assert!(!server.process.stdout_text().contains("delay:"));
    let copy = disk.path("copy");
    nbdcopy.run([&server.uri, &copy]).success();
    server.stop();
    assert!(fs::read(&disk.clear).unwrap() == fs::read(copy).unwrap());
}

#[test]
fn every_dispatch_is_said_and_reads_what_any_other_wrote() {
    let Some([cryptsetup, nbdcopy]) = peer::require_all(["cryptsetup", "nbdcopy"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let clear = fs::read(&disk.clear).unwrap();
    let ways: [(&[&str], &str); 6] = [
        (&["--dispatch=inline"], "inline"),
        (&["--dispatch=queue"], "queue"),
        (&["--helpers=1"], "auto (1 helper)"),
        (&["--helpers=0"], "auto (no helpers)"),
        (&["--perf-same_cpu_crypt", "--perf-submit_from_crypt_cpus"], "queue (same_cpu_crypt, submit_from_crypt_cpus)"),
        (&["--perf-no_read_workqueue", "--write-dispatch=queue"], "read inline, write queue"),
    ];
    let start = |options: &[&'static str], says: &str| {
        let server = Server::start(disk.arguments().into_iter().chain(options.iter().copied()));
        assert_eq!(value(&server.process.stdout_text(), "dispatch"), says);
        server
    };
    for (index, mark) in (0..ways.len()).zip(1u8..) {
        let (options, says) = ways[index];
        // Other bytes each time, so that those of the way before are not taken for them.
        let (source, copy) = (disk.path(&format!("in{index}")), disk.path("out"));
        let data: Vec<u8> = clear.iter().map(|byte| byte ^ mark).collect();
        fs::write(&source, &data).unwrap();
        let server = start(options, says);
        nbdcopy.run(["--flush", &source, &server.uri]).success();
        server.stop();
        let (options, says) = ways[(index + 1) % ways.len()];
        let server = start(options, says);
        nbdcopy.run([&server.uri, &copy]).success();
        server.stop();
        assert!(fs::read(&copy).unwrap() == data, "written by way {index}");
        fs::remove_file(&copy).unwrap();
    }
}
