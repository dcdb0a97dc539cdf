//! Volumes in images of a Ceph cluster: those that Ceph has encrypted and ours, each opened by both; and what the cluster
//! does meanwhile.
//!
//! One cluster for all, since it takes longer to start than most of what is asked of it; so this is one test, which names
//! each part that fails.

mod exceptions;
mod lock;
mod promises;
mod served;

use crate::below::{self, TIMEOUT, create};
use crate::common;
use crate::load;
use crate::server;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::common::{Folder, PASSPHRASE, cryptline, refused};
use crate::server::{Server, noise, text, wait_until};
use cryptline_testkit::ceph::Ceph;
use cryptline_testkit::peer::{self, Peer, run};
use rustix::process::Signal;

const MIB: usize = 1 << 20;

/// Ceph's own encryption: `read|write CONF IMAGE FORMAT PASSPHRASE FILE OFFSET LENGTH`.
const LIBRBD: &str = "
import rados, rbd, sys
verb, conf, image, form, passphrase, path, offset, length = sys.argv[1:]
cluster = rados.Rados(conffile=conf)
cluster.connect()
pool = cluster.open_ioctx('rbd')
image = rbd.Image(pool, image)
formats = {'luks1': rbd.RBD_ENCRYPTION_FORMAT_LUKS1, 'luks2': rbd.RBD_ENCRYPTION_FORMAT_LUKS2}
image.encryption_load(formats[form], passphrase)
if verb == 'read':
    open(path, 'wb').write(image.read(int(offset), int(length)))
else:
    image.write(open(path, 'rb').read(int(length)), int(offset))
    image.flush()
image.close()
";

/// Something about the cluster. What it leaves there is in nobody's way.
type Part = fn(&mut Ceph);

/// In this order: daemons that begin anew have little to fetch from the others at first, and the last part ends them all.
const PARTS: &[(&str, Part)] = &[
    ("storage daemons come and go under load", storage_daemons_come_and_go),
    ("image keeps what devices promise", |ceph| promises::image_keeps_what_devices_promise(ceph)),
    ("luks1 that Ceph has made and ours open in both", |ceph| opens_in_both(ceph, "luks1", &["--luks1"])),
    ("luks2 that Ceph has made and ours open in both", |ceph| opens_in_both(ceph, "luks2", &[])),
    ("image of cryptsetup opens and parts of images are filled", |ceph| image_of_cryptsetup_opens(ceph)),
    ("what a cluster does to a served image is seen", |ceph| what_a_cluster_does_is_seen(ceph)),
    ("cluster is entered with a key and its namespaces too", |ceph| keys_and_namespaces(ceph)),
    ("server ends while a write waits for a cluster that has shut it out", |ceph| server_that_is_shut_out_ends(ceph)),
    ("image that another client writes to is left to it until it is gone", |ceph| {
        lock::image_that_another_client_writes_to_is_left_to_it_until_it_is_gone(ceph);
    }),
    ("what is not there is told with the next step", what_is_not_there_is_told),
];

#[test]
fn heavy_ceph_cluster_and_its_images_are_served_as_they_should_be() {
    let Some(mut ceph) = Ceph::start() else { return };
    let mut failed = Vec::new();
    for (name, part) in PARTS {
        let began = Instant::now();
        if catch_unwind(AssertUnwindSafe(|| part(&mut ceph))).is_err() {
            failed.push(*name);
        }
        eprintln!("--- {name}: {:.1} s", began.elapsed().as_secs_f32());
    }
    assert!(failed.is_empty(), "{} failed, each explained above its name:\n{}", failed.len(), failed.join("\n"));
}

fn target(ceph: &Ceph, image: &str) -> String {
    format!("rbd:rbd/{image}?conf={}", ceph.conf().display())
}

fn make_image(ceph: &Ceph, image: &str, size: &str) {
    let spec = format!("rbd/{image}");
    ceph.rbd(["create", "--size", size, &spec]).success();
}

fn serve(target: &str, folder: &Folder, options: &[&str]) -> Server {
    below::serve(target, &text(&folder.key()), options)
}

/// Reads, or writes, at 1 MiB of the clear disk by Ceph's own encryption.
fn librbd(python: &Peer, ceph: &Ceph, verb: &str, image: &str, form: &str, file: &str) {
    let (conf, at, len) = (text(&ceph.conf()), MIB.to_string(), (6 * MIB).to_string());
    let arguments = [verb, &conf, image, form, PASSPHRASE, file, &at, &len];
    python.run(["-c", LIBRBD].iter().chain(&arguments)).success();
}

/// Data goes through the volume both ways, whoever writes.
fn is_the_same_for_both(ceph: &Ceph, folder: &Folder, image: &str, form: &str) {
    let peers = ["python3-rbd", "qemu-io", "nbdcopy"];
    let Some([python, qemu_io, nbdcopy]) = peer::require_all(peers) else {
        return;
    };
    let (theirs, ours) = (text(&folder.path("theirs")), text(&folder.path("ours")));
    let data = noise(6 * MIB);
    fs::write(&theirs, &data).expect("room");
    librbd(&python, ceph, "write", image, form, &theirs);

    let server = serve(&target(ceph, image), folder, &[]);
    let uri = &server.uri;
    nbdcopy.run([uri, &ours]).success();
    let read = fs::read(&ours).expect("a copy");
    assert!(read[MIB..7 * MIB] == data, "theirs is not read");
    let write = format!("write -s {theirs} 3M 4M");
    let swap = ["-f", "raw", "-c", &write, "-c", "flush", uri];
    qemu_io.run(swap).success();
    server.stop();

    librbd(&python, ceph, "read", image, form, &ours);
    let read = fs::read(&ours).expect("read");
    assert!(read[..2 * MIB] == data[..2 * MIB], "what was theirs changed");
    assert!(read[2 * MIB..] == data[..4 * MIB], "ours is not read");
}

fn opens_in_both(ceph: &Ceph, form: &str, options: &[&str]) {
    let folder = Folder::new();
    let [theirs, ours] = ["theirs", "ours"].map(|whose| format!("{whose}-{form}"));
    make_image(ceph, &theirs, "32M");
    let key = text(&folder.key());
    ceph.rbd(["encryption", "format", &format!("rbd/{theirs}"), form, &key]).success();
    is_the_same_for_both(ceph, &folder, &theirs, form);

    make_image(ceph, &ours, "32M");
    create(&folder, &target(ceph, &ours), options).success();
    is_the_same_for_both(ceph, &folder, &ours, form);
    // What is there is not overwritten by mistake.
    refused(create(&folder, &target(ceph, &ours), options), 5, "LUKS");
}

fn image_of_cryptsetup_opens(ceph: &Ceph) {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let folder = Folder::new();
    let disk = server::Disk::new(&cryptsetup, "luks2");
    ceph.rbd(["import", &disk.image, "rbd/made"]).success();
    let made = target(ceph, "made");
    cryptline(["open", "--check", &made, "--key-file", &disk.key]).success();
    let info = cryptline(["info", &made]).success().stdout_text();
    assert!(info.contains("LUKS2"), "{info}");
    clone_is_the_volume_that_its_parent_was(ceph, &folder, &disk.key);
    served::is_the_same_through_qemu_nbd(ceph, &folder, "made", &disk.key);

    make_image(ceph, "plain", "32M");
    let clear = text(&folder.path("clear"));
    fs::write(&clear, noise(8 * MIB)).expect("room");
    let plain = target(ceph, "plain");
    cryptline(["copy", &clear, &format!("{plain}&offset=4M&length=8M")]).success();
    let raw = text(&folder.path("raw"));
    ceph.rbd(["export", "rbd/plain", &raw]).success();
    let raw = fs::read(&raw).expect("exported");
    assert!(raw[4 * MIB..12 * MIB] == noise(8 * MIB), "the copy differs");
}

/// A clone without a key of its own has its parent's header.
fn clone_is_the_volume_that_its_parent_was(ceph: &Ceph, folder: &Folder, key: &str) {
    for words in [
        &["snap", "create", "rbd/made@then"][..],
        &["snap", "protect", "rbd/made@then"],
        &["clone", "rbd/made@then", "rbd/child"],
    ] {
        ceph.rbd(words.iter().copied()).success();
    }
    let (made, heir) = (target(ceph, "made"), target(ceph, "child"));
    let part = text(&folder.path("part"));
    fs::write(&part, noise(MIB)).expect("room");
    let read = |target: &str, name: &str| {
        let copy = text(&folder.path(name));
        cryptline(["copy", target, &copy, "--key-file", key]).success();
        fs::read(copy).expect("a copy")
    };
    let before = read(&made, "before");
    assert!(read(&heir, "inherited") == before);
    let to_key = ["--to-key-file", key];
    cryptline(["copy", "--force", &part, &heir].into_iter().chain(to_key)).success();
    let after = read(&heir, "own");
    assert!(after[..MIB] == noise(MIB) && after[MIB..] == before[MIB..]);
    assert!(read(&made, "parent") == before);
}

fn what_a_cluster_does_is_seen(ceph: &Ceph) {
    let peers = ["qemu-io", "nbdinfo"];
    let Some([qemu_io, nbdinfo]) = peer::require_all(peers) else {
        return;
    };
    let folder = Folder::new();
    let (key, disk) = (text(&folder.key()), target(ceph, "served"));
    make_image(ceph, "served", "80M");
    create(&folder, &disk, &[]).success();
    let server = serve(&disk, &folder, &["--allow-discards", "--zeroes=detect"]);
    let io = |commands: &[&str]| {
        let commands = commands.iter().flat_map(|it| ["-c", it]);
        qemu_io.run(["-f", "raw"].into_iter().chain(commands).chain([&*server.uri]))
    };
    io(&["write -P 7 0 32M", "flush"]).success();

    // The second writer.
    let second = cryptline(["serve", &disk, "--key-file", &key]);
    refused(second, 5, "in use");

    let overwrite = || drop(io(&["write -P 8 0 8M", "flush"]).success());
    served::snapshot_stays_as_it_is_until_it_is_removed((ceph, &folder, &qemu_io), overwrite);

    // It grows.
    ceph.rbd(["resize", "--size", "96M", "rbd/served"]).success();
    wait_until("it has grown", || {
        let size = nbdinfo.run(["--size", &server.uri]).success();
        size.stdout_text().trim() == (80 * MIB).to_string()
    });
    io(&["write -P 9 70M 8M", "read -P 9 70M 8M", "flush"]).success();

    // What is discarded is free, and what was never written stays so.
    let used = || served::used(ceph, "served");
    let before = used();
    io(&["discard 0 32M", "discard 40M 16M", "flush"]).success();
    assert!(used() <= before - (28 << 20), "{before} to {}", used());
    let map = nbdinfo.run(["--map", &server.uri]).success().stdout_text();
    assert!(map.contains("hole,zero"), "{map}");
    server.stop();
    served::what_deleted_files_had_is_given_back(ceph, &folder, "served");
}

fn storage_daemons_come_and_go(ceph: &mut Ceph) {
    let Some(fio) = peer::require("fio") else {
        return;
    };
    let folder = Folder::new();
    let disk = target(ceph, "loaded");
    make_image(ceph, "loaded", "48M");
    create(&folder, &disk, &[]).success();
    let server = serve(&disk, &folder, &["--sandbox=on"]);
    load::outlasts(&fio, folder.root(), &server.uri, || {
        for osd in 0..2 {
            ceph.kill_osd(osd);
            ceph.start_osds();
        }
    });
    server.stop();
}

#[test]
fn libraries_that_are_not_there_are_told_by_their_packages() {
    let folder = Folder::new();
    fs::write(folder.path("librados.so.2"), "no library").expect("room");
    let mut command = common::command();
    command.args(["info", "rbd:rbd/disk"]);
    let run = run(command.env("LD_LIBRARY_PATH", folder.root()), TIMEOUT);
    refused(run, 4, "install the packages librbd1 and librados2");
}

fn what_is_not_there_is_told(ceph: &mut Ceph) {
    let folder = Folder::new();
    let key = text(&folder.key());
    make_image(ceph, "small", "8M");
    let conf = ceph.conf();
    let check = |target: &str| cryptline(["open", "--check", target, "--key-file", &key]);
    let at = |spec: &str| format!("rbd:{spec}?conf={}", conf.display());
    for (target, what) in [
        (at("nowhere/disk"), "`ceph osd pool ls`"),
        (at("rbd/nothing"), "`rbd ls rbd`"),
        (at("rbd/nospace/disk"), "`rbd ls rbd/nospace`"),
        (at("rbd/small@never"), "`rbd snap ls rbd/small`"),
        ("rbd:rbd/disk?conf=/nowhere".to_owned(), "?conf=PATH"),
    ] {
        refused(check(&target), 4, what);
    }
    refused(check("rbd:disk"), 1, "rbd:POOL/IMAGE");

    ceph.rbd(["feature", "disable", "rbd/small", "object-map", "exclusive-lock"]);
    ceph.rbd(["create", "--size", "32M", "--image-feature", "layering", "rbd/open"]).success();
    let open = create(&folder, &target(ceph, "open"), &[]);
    refused(open, 4, "exclusive-lock");

    // A cluster of other monitors, which are not there, and one whose key is not known.
    let written = fs::read_to_string(&conf).expect("it is there");
    let other = ceph.folder().join("down.conf");
    let monitors = written.find("mon host").expect("a line");
    let end = monitors + written[monitors..].find('\n').expect("its end");
    let down =
        format!("{}mon host = [v2:127.0.0.1:1/0]\nclient mount timeout = 2{}", &written[..monitors], &written[end..]);
    fs::write(&other, down).expect("room");
    let target = format!("rbd:rbd/small?conf={}", other.display());
    refused(check(&target), 4, "do not answer in time");
    let secret = written.replace("keyring = ", "keyring = /nowhere");
    fs::write(&other, secret).expect("room");
    refused(check(&target), 4, "keyring");

    goes_down_under_way(ceph, &folder);
}

/// Clients that are told not to wait for ever do not: one that opens an image, and one that has it open.
fn goes_down_under_way(ceph: &mut Ceph, folder: &Folder) {
    let Some(qemu_io) = peer::require("qemu-io") else {
        return;
    };
    let key = text(&folder.key());
    make_image(ceph, "left", "32M");
    create(folder, &target(ceph, "left"), &[]).success();
    let brief = ceph.folder().join("brief.conf");
    let written = fs::read_to_string(ceph.conf()).expect("it is there");
    let limits = "[client]\nrados osd op timeout = 4\nrados mon op timeout = 4\nclient mount timeout = 4\n";
    fs::write(&brief, written + limits).expect("room");
    let disk = format!("rbd:rbd/left?conf={}", brief.display());
    let server = serve(&disk, folder, &[]);
    let io = |command: &str| {
        let io = ["-f", "raw", "-c", command, &server.uri];
        qemu_io.run(io).stdout_text()
    };
    assert!(!io("write -P 7 0 64k").contains("failed"));
    let check = || cryptline(["open", "--check", &disk, "--key-file", &key]);

    ceph.kill_osds();
    refused(check(), 4, "`ceph osd tree`");
    ceph.kill_all();
    refused(check(), 4, "do not answer in time");
    assert!(io("read 0 64k").contains("failed"));
    // What was written was acknowledged while there was a cluster, so nothing is lost.
    server.stop();
}

fn keys_and_namespaces(ceph: &Ceph) {
    let folder = Folder::new();
    ceph.rbd(["namespace", "create", "rbd/space"]).success();
    make_image(ceph, "space/disk", "32M");
    let disk = target(ceph, "space/disk");
    create(&folder, &disk, &[]).success();
    let server = serve(&disk, &folder, &["--sandbox=on"]);
    server.stop();
    // The image of that name in the pool itself is another.
    make_image(ceph, "disk", "32M");
    let key = text(&folder.key());
    let check = |target: &str| cryptline(["open", "--check", target, "--key-file", &key]);
    check(&disk).success();
    let other = check(&target(ceph, "disk"));
    assert!(!other.status.success(), "{other}");

    // A client that may do nothing but this, by its own key.
    let caps = ["mon", "profile rbd", "osd", "profile rbd pool=rbd namespace=space"];
    let new = ["auth", "get-or-create", "client.guest"];
    let guest = ceph.ceph(new.into_iter().chain(caps)).success().stdout;
    let keyring = ceph.folder().join("guest.keyring");
    fs::write(&keyring, guest).expect("room");
    let with_keyring = |keyring: &std::path::Path| {
        let all = fs::read_to_string(ceph.conf()).expect("it is there");
        let admins = format!("{}/keyring", ceph.folder().display());
        let conf = ceph.folder().join("guest.conf");
        fs::write(&conf, all.replace(&admins, &text(keyring))).expect("room");
        conf
    };
    let conf = with_keyring(&keyring);
    let as_guest = |image: &str| format!("rbd:rbd/{image}?conf={}&id=guest", conf.display());
    check(&as_guest("space/disk")).success();
    let elsewhere = check(&as_guest("disk"));
    assert_eq!(elsewhere.status.code(), Some(4), "{elsewhere}");

    with_keyring(&folder.path("nowhere"));
    refused(check(&as_guest("space/disk")), 4, "keyring");
    // Not the key that the cluster knows.
    let wrong = "[client.guest]\n\tkey = AQAcggRrPsVHJxAAVsEGdkGu1yzk/Mg6Yg2huw==\n";
    fs::write(&keyring, wrong).expect("room");
    with_keyring(&keyring);
    refused(check(&as_guest("space/disk")), 4, "does not let in client.guest");
}

fn server_that_is_shut_out_ends(ceph: &Ceph) {
    let Some(qemu_io) = peer::require("qemu-io") else {
        return;
    };
    let folder = Folder::new();
    let disk = target(ceph, "shut-out");
    make_image(ceph, "shut-out", "32M");
    create(&folder, &disk, &[]).success();
    let server = serve(&disk, &folder, &[]);
    let write = |pattern: u8| {
        let mut command = qemu_io.command();
        let write = format!("write -P {pattern} 0 64k");
        command.args(["-f", "raw", "-c", &write, "-c", "flush", &server.uri]);
        command
    };
    run(&mut write(1), TIMEOUT).success();
    let lock = ceph.rbd(["lock", "ls", "--format", "json", "rbd/shut-out"]).success();
    let lock: serde_json::Value = serde_json::from_slice(&lock.stdout).expect("JSON");
    let holder = lock[0]["address"].as_str().expect("an address").to_owned();
    ceph.ceph(["osd", "blocklist", "add", &holder]).success();
    // The storage daemons hear of it a moment later, and take writes until then. After that a write fails, or waits.
    let mut kept = 1;
    let waiting = loop {
        assert!(kept < 100, "the cluster has not shut it out");
        let mut client = peer::BackgroundProgram::spawn(&mut write(kept + 1));
        if !(client.wait(Duration::from_secs(10))).is_some_and(|status| status.success()) {
            break client;
        }
        kept += 1;
    };
    // The server ends either way, and says that not all was done.
    let mut process = server.process;
    process.signal(Signal::TERM);
    let in_time = process.wait(TIMEOUT).is_some();
    let ended = process.collect();
    assert!(in_time, "it does not end:\n{ended}");
    assert_eq!(ended.status.code(), Some(4), "{ended}");
    assert!(!ended.stderr_text().contains("panicked"), "{ended}");
    drop(waiting);

    // Every flush that said yes has told the truth. The write that got no answer may be there all the same.
    let copy = text(&folder.path("copy"));
    let key = text(&folder.key());
    cryptline(["copy", &disk, &copy, "--key-file", &key]).success();
    let copy = fs::read(copy).expect("it is there");
    let is_there = |byte: &u8| (kept..=kept + 1).contains(byte);
    assert!(copy[..64 << 10].iter().all(is_there), "{:?}", &copy[..16]);
}
