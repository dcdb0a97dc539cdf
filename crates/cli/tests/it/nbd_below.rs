//! Volumes behind NBD servers, as users meet them: made there, looked at, served on; and what is said where that
//! cannot be.

use crate::load;
use std::fs;

use crate::below::{Below, TIMEOUT, create, serve, uri};
use crate::common::{Folder, PASSPHRASE, cryptline, refused};
use crate::server::{Server, noise, text, wait_until};
use cryptline_testkit::peer::{self, Peer, run_with_input};
use cryptline_testkit::pki::Pki;

#[test]
fn volume_is_made_in_an_export_served_from_it_and_found_again() {
    let Some(nbdkit) = peer::require("nbdkit") else {
        return;
    };
    let folder = Folder::new();
    let below = Below::nbdkit(&nbdkit, &folder, &["memory", "64M"]);
    is_made_served_and_found(&folder, &below.uri());
}

#[test]
fn volume_in_an_export_behind_tls_is_the_same() {
    let Some([nbdkit, openssl]) = peer::require_all(["nbdkit", "openssl"]) else {
        return;
    };
    let (folder, pki) = (Folder::new(), Pki::new(&openssl));
    let certificates = pki.option();
    let tls = ["--tls=require", "--tls-verify-peer", &certificates];
    let below = Below::nbdkit(&nbdkit, &folder, &[&tls[..], &["memory", "64M"]].concat());
    let uri = below.uri().replace("nbd+unix", "nbds+unix");
    let uri = format!("{uri}&tls-certificates={}&tls-hostname=localhost", pki.path());
    is_made_served_and_found(&folder, &uri);
}

fn is_made_served_and_found(folder: &Folder, uri: &str) {
    let peers = ["nbdcopy", "nbdinfo", "qemu-img"];
    let Some([nbdcopy, nbdinfo, qemu_img]) = peer::require_all(peers) else {
        return;
    };
    let key = text(&folder.key());
    let made = create(folder, uri, &[]).success().stdout_text();
    assert!(made.contains(&format!("cryptline serve '{uri}'")), "{made}");
    let info = cryptline(["info", uri]).success().stdout_text();
    assert!(info.contains("LUKS2") && info.contains("64 MiB"), "{info}");
    cryptline(["open", "--check", uri, "--key-file", &key]).success();
    let table = cryptline(["table", uri, "--key-file", &key]).success();
    assert!(table.stdout_text().contains(&format!(" {uri} ")), "{table}");

    let clear = text(&folder.path("clear"));
    fs::write(&clear, noise(6 << 20)).expect("room");
    let server = serve(uri, &key, &["--zeroes=detect", "--allow-discards"]);
    nbdcopy.run(["--flush", &clear, &server.uri]).success();
    let same = ["compare", "-f", "raw", "-F", "raw", &clear, &server.uri];
    qemu_img.run(same).success();
    let map = nbdinfo.run(["--map", "--json", &server.uri]).success();
    let extents: serde_json::Value = serde_json::from_slice(&map.stdout).expect("JSON");
    let last = extents.as_array().and_then(|all| all.last()).expect("one");
    assert_eq!(last["description"], "hole,zero", "{map}");
    let data = |extent: &&serde_json::Value| extent["type"] == 0;
    let data = extents.as_array().expect("all").iter().filter(data);
    let data: u64 = data.filter_map(|extent| extent["length"].as_u64()).sum();
    assert!((6 << 20..12 << 20).contains(&data), "{map}");
    server.stop();

    let server = serve(uri, &key, &["--read-only", "--sandbox=on", "--zeroes=detect"]);
    let same = ["compare", "-f", "raw", "-F", "raw", &clear, &server.uri];
    qemu_img.run(same).success();
    server.stop();
}

#[test]
fn what_an_export_holds_is_named_and_lost_by_force_only() {
    let Some(nbdkit) = peer::require("nbdkit") else {
        return;
    };
    let folder = Folder::new();
    let path = folder.path("export");
    fs::File::create(&path).expect("a file").set_len(64 << 20).expect("room");
    let file = format!("file={}", path.display());
    // One connection at a time is enough for it.
    let words = ["--filter=multi-conn", "file", &file, "multi-conn-mode=disable"];
    let below = Below::nbdkit(&nbdkit, &folder, &words);
    let uri = below.uri();
    refused(create(&folder, &uri, &["--size=64M"]), 1, "leave out --size");
    create(&folder, &uri, &["--luks1"]).success();
    let before = fs::read(&path).expect("a file");
    refused(create(&folder, &uri, &[]), 5, "it holds a LUKS header; --force");
    assert!(fs::read(&path).expect("a file") == before);
    create(&folder, &uri, &["--force"]).success();
    // What was made is a volume as any other.
    drop(below.process);
    folder.check(&path).success();
    let words = ["--readonly", "file", &file];
    let below = Below::nbdkit(&nbdkit, &folder, &words);
    refused(create(&folder, &below.uri(), &["--force"]), 4, "it is read-only");
    let mut held = vec![0; 40 << 20];
    held[20 << 20] = 1;
    fs::write(&path, held).expect("room");
    let below = Below::nbdkit(&nbdkit, &folder, &["file", &file]);
    refused(create(&folder, &below.uri(), &[]), 5, "it holds data");
}

#[test]
fn server_that_cannot_be_had_is_said_in_one_line() {
    let folder = Folder::new();
    let nowhere = folder.path("nowhere");
    for (target, what) in [
        ("nbd://no-such-host.invalid/", "no-such-host.invalid is not known"),
        ("nbd://127.0.0.1:1/", "nobody listens on port 1 of 127.0.0.1"),
        (&*uri(&nowhere, ""), "is the server running?"),
        ("nbds://127.0.0.1/", "tls-certificates=DIR"),
    ] {
        refused(cryptline(["info", target]), 4, what);
    }
    refused(cryptline(["info", "nbd://"]), 1, "names no host");
    refused(cryptline(["info", "nbd+unix:///x"]), 1, "names no socket");
    // Ways of libnbd that are none here.
    for (target, what) in [
        ("nbd+vsock://2/x", "`socat UNIX-LISTEN:PATH,fork VSOCK-CONNECT:CID:PORT`"),
        ("nbds+ssh://host/x", "`ssh -N -L PATH:REMOTE_SOCKET HOST`"),
        ("nbds://host/x?tls-psk-file=/keys", "use certificates"),
    ] {
        refused(cryptline(["info", target]), 1, what);
    }
}

#[test]
fn export_that_does_not_fit_is_said_with_what_would() {
    let Some(nbdkit) = peer::require("nbdkit") else {
        return;
    };
    let folder = Folder::new();
    let key = text(&folder.key());
    let server = Server::start(["ram:64M", "--export-name=one"]);
    let wrong = server.uri.replace("/one?", "/two?");
    refused(cryptline(["info", &wrong]), 4, r#"no export "two"; it has "one""#);
    server.stop();

    let psk = folder.path("psk");
    fs::write(&psk, format!("user:{}", "0".repeat(64))).expect("room");
    let keys = format!("--tls-psk={}", psk.display());
    let below = Below::nbdkit(&nbdkit, &folder, &["--tls=require", &keys, "memory", "64M"]);
    refused(cryptline(["info", &below.uri()]), 4, "demands TLS");

    let blocks = |minimum: &str| {
        let preferred = format!("blocksize-preferred={minimum}");
        let minimum = format!("blocksize-minimum={minimum}");
        let policy = ["blocksize-maximum=1M", "blocksize-error-policy=error"];
        let words = ["--filter=blocksize-policy", "memory", "64M", &minimum, &preferred];
        Below::nbdkit(&nbdkit, &folder, &[&words[..], &policy].concat())
    };
    let below = blocks("4096");
    let luks1 = create(&folder, &below.uri(), &["--luks1"]);
    refused(luks1, 4, "make a LUKS2 volume with sectors of that size");
    create(&folder, &below.uri(), &[]).success();
    cryptline(["open", "--check", &below.uri(), "--key-file", &key]).success();
    let below = blocks("64K");
    refused(create(&folder, &below.uri(), &[]), 4, "no volume has sectors of that size");

    let short = folder.luks2();
    let file = fs::File::options().write(true).open(&short).expect("a file");
    file.set_len(8 << 20).expect("shorter");
    let below = Below::nbdkit(&nbdkit, &folder, &["file", &format!("file={}", short.display())]);
    let served = cryptline(["serve", &below.uri(), "--key-file", &key, "--run=true"]);
    refused(served, 4, "is the file cut short?");
}

#[test]
fn more_queues_than_the_server_takes_connections_are_refused() {
    let Some(nbdkit) = peer::require("nbdkit") else {
        return;
    };
    let folder = Folder::new();
    let words = ["--filter=multi-conn", "memory", "64M", "multi-conn-mode=disable"];
    let below = Below::nbdkit(&nbdkit, &folder, &words);
    let (uri, key) = (below.uri(), text(&folder.key()));
    create(&folder, &uri, &[]).success();
    let socket = text(&folder.path("vhost"));
    let file = text(&folder.path("disk"));
    fs::write(&file, "").expect("room");
    for (verb, place, option) in
        [("vhost-user", &["--socket-path", &*socket][..], "--num-queues"), ("mount", &[&*file], "--lanes")]
    {
        let arguments = [verb, &uri, "--key-file", &key, option, "2"];
        let run = cryptline(arguments.iter().chain(place));
        refused(run, 1, "can have 1 at a time, because of the connections");
    }
    // Who wants connections made again is told what that cannot save.
    let warning = "the NBD server takes one connection (no NBD_FLAG_CAN_MULTI_CONN)";
    for (again, read_only) in [(true, false), (true, true), (false, false)] {
        let mut words = vec!["serve", &uri, "--key-file", &key, "--run=true"];
        words.extend(again.then_some("--reconnect=5"));
        words.extend(read_only.then_some("--read-only"));
        let run = cryptline(words).success();
        let is_warned = run.stderr_text().contains(warning);
        assert_eq!(is_warned, again && !read_only, "{run}");
    }
}

#[test]
fn server_that_is_lost_is_named_at_the_end() {
    let Some([nbdkit, nbdcopy]) = peer::require_all(["nbdkit", "nbdcopy"]) else {
        return;
    };
    let folder = Folder::new();
    let mut below = Below::nbdkit(&nbdkit, &folder, &["memory", "64M"]);
    let (uri, key) = (below.uri(), text(&folder.key()));
    create(&folder, &uri, &[]).success();
    let clear = text(&folder.path("clear"));
    fs::write(&clear, noise(1 << 20)).expect("room");
    let server = serve(&uri, &key, &[]);
    nbdcopy.run([&clear, &server.uri]).success();
    below.process.kill();
    let failed = nbdcopy.run([&server.uri, "null:"]);
    assert!(!failed.status.success(), "{failed}");
    let ended = server.process.stop().exited_with(4);
    let said = ended.stderr_text();
    assert!(said.contains(&format!("the connection to {uri} was lost")), "{said}");
    assert!(!said.contains(PASSPHRASE));
}

#[test]
fn server_that_is_killed_and_started_anew_under_load_is_not_missed() {
    let Some([nbdkit, fio]) = peer::require_all(["nbdkit", "fio"]) else {
        return;
    };
    let folder = Folder::new();
    outlives(&folder, (&nbdkit, &fio), ([].into(), ""));

    let image = text(&folder.luks2());
    let file = ["serve", &image, "--reconnect=1", "--run=true"];
    refused(cryptline(file), 1, "leave out --reconnect");
}

#[test]
fn server_behind_tls_that_is_killed_and_started_anew_under_load_is_not_missed() {
    let Some([nbdkit, fio, openssl]) = peer::require_all(["nbdkit", "fio", "openssl"]) else {
        return;
    };
    let (folder, pki) = (Folder::new(), Pki::new(&openssl));
    let words = ["--tls=require", "--tls-verify-peer", &pki.option()].map(str::to_owned);
    let of_uri = format!("&tls-certificates={}&tls-hostname=localhost", pki.path());
    outlives(&folder, (&nbdkit, &fio), (words.into(), &of_uri));
}

/// Whether a load does not notice that the server below is killed and started anew. What nbdkit was told to write is in
/// the kernel's memory and outlives it in any case: that FUA is asked for is proved by the engine's tests.
fn outlives(folder: &Folder, (nbdkit, fio): (&Peer, &Peer), (mut words, of_uri): (Vec<String>, &str)) {
    let path = folder.path("export");
    let file = fs::File::create(&path).expect("a file");
    file.set_len(64 << 20).expect("room");
    words.extend(["file".to_owned(), format!("file={}", path.display())]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut below = Below::nbdkit(nbdkit, folder, &words);
    let mut uri = below.uri() + of_uri;
    if !of_uri.is_empty() {
        uri = uri.replace("nbd+unix", "nbds+unix");
    }
    let key = text(&folder.key());
    create(folder, &uri, &[]).success();
    let server = serve(&uri, &key, &["--reconnect=120", "--sandbox=on"]);
    load::outlasts(fio, folder.root(), &server.uri, || {
        let changed = || fs::metadata(&path).and_then(|file| file.modified()).ok();
        for _ in 0..3 {
            let before = changed();
            wait_until("the load writes", || changed() != before);
            below.process.kill();
            // Where the server has not removed it.
            let _ = fs::remove_file(&below.socket);
            below = Below::nbdkit_at(nbdkit, below.socket.clone(), &words);
        }
        let before = changed();
        wait_until("the load goes on", || changed() != before);
    });
    server.stop();
    let key = ["open", "--check", &uri, "--key-file", &key];
    cryptline(key).success();
}

#[test]
fn partition_behind_a_server_of_large_blocks_is_where_its_table_says() {
    let Some([nbdkit, sfdisk]) = peer::require_all(["nbdkit", "sfdisk"]) else {
        return;
    };
    let folder = Folder::new();
    let key = text(&folder.key());
    for label in ["dos", "gpt"] {
        let disk = folder.path(label);
        let file = fs::File::create(&disk).expect("a file");
        file.set_len(64 << 20).expect("room");
        let script = format!("label: {label}\nstart=2048, size=40960\nstart=43008, size=69632\n");
        let mut command = sfdisk.command();
        command.args(["--quiet", "--no-reread", "--no-tell-kernel"]);
        run_with_input(command.arg(&disk), TIMEOUT, script.as_bytes()).success();
        let file = format!("file={}", disk.display());
        let words = [
            "--filter=blocksize-policy",
            "file",
            &file,
            "blocksize-minimum=4096",
            "blocksize-preferred=4096",
            "blocksize-maximum=1M",
            "blocksize-error-policy=error",
        ];
        let below = Below::nbdkit(&nbdkit, &folder, &words);
        let target = format!("{}&partition=2", below.uri());
        create(&folder, &target, &[]).success();
        cryptline(["open", "--check", &target, "--key-file", &key]).success();
        drop(below);
        // The same in the file itself.
        let part = format!("{}?partition=2", disk.display());
        cryptline(["open", "--check", &part, "--key-file", &key]).success();
        let stored = fs::read(&disk).expect("a file");
        assert_eq!(&stored[43008 * 512..][..4], b"LUKS", "{label}");
    }
}

/// Where clients ask for what: offsets and lengths of the requests of a kind in the log of nbdkit.
fn logged(log: &str, kind: &str) -> Vec<(usize, usize)> {
    let number = |line: &str, name: &str| {
        let (_, rest) = line.split_once(name)?;
        let digits = rest.split_whitespace().next()?;
        usize::from_str_radix(digits.strip_prefix("0x")?, 16).ok()
    };
    let requests = log.lines().filter(|line| line.contains(kind));
    let ranges = requests.filter_map(|line| Some((number(line, " offset=")?, number(line, " count=")?)));
    ranges.collect()
}

#[test]
fn hint_of_a_client_reaches_the_server_below_at_its_place_or_is_a_read() {
    let Some([nbdkit, python]) = peer::require_all(["nbdkit", "python3-libnbd"]) else {
        return;
    };
    const MIB: usize = 1 << 20;
    let hint = "import nbd, sys\nh = nbd.NBD()\nh.connect_uri(sys.argv[1])\nh.cache(6 << 20, 1 << 20)\nh.flush()\nh.shutdown()\n";
    for takes_hints in [true, false] {
        let folder = Folder::new();
        let (key, log) = (text(&folder.key()), text(&folder.path("log")));
        let to_log = format!("logfile={log}");
        let mode = if takes_hints { "nop" } else { "none" };
        let mode = format!("cachemode={mode}");
        let words = ["--filter=log", "--filter=nocache", "memory", "96M", &to_log, &mode];
        let below = Below::nbdkit(&nbdkit, &folder, &words);
        // A volume in a volume in a part of the export.
        let part = format!("{}&offset=8M", below.uri());
        create(&folder, &part, &[]).success();
        let outer = serve(&part, &key, &[]);
        create(&folder, &outer.uri, &["--force"]).success();
        let inner = serve(&outer.uri, &key, &["--max-connections=4"]);
        fs::File::create(&log).expect("nbdkit appends to it");
        python.run(["-c", hint, &inner.uri]).success();
        inner.stop();
        outer.stop();
        let written = fs::read_to_string(&log).expect("a log");
        let (hints, reads) = (logged(&written, " Cache "), logged(&written, " Read "));
        let place = (8 + 16 + 16 + 1) * MIB;
        if takes_hints {
            assert_eq!((hints, reads), (vec![(place, 6 * MIB)], vec![]), "{written}");
        } else {
            assert_eq!(hints, [], "{written}");
            let first = reads.iter().map(|read| read.0).min();
            let bytes: usize = reads.iter().map(|read| read.1).sum();
            assert_eq!((first, bytes), (Some(place), 6 * MIB), "{written}");
        }
    }
}
