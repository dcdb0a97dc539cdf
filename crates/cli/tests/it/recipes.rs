//! The recipes of docs/recipes.md and the examples of README.md, tried as they are written.

mod page;
mod place;

use std::fs;
use std::process::Command;
use std::time::Duration;

use clap::Parser as _;
use cryptline_cli::command_line::Cli;
use cryptline_testkit::peer::{self, BackgroundProgram};
use page::{Block, blocks};
use place::{BEGIN, Place, SIZE, boot_sector};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
use serde_json::Value;

const PAGE: &str = "docs/recipes.md";
const READY: Duration = Duration::from_secs(60);
/// Sections, each with the test that tries it.
const TRIED: &[&str] = &[
    "QEMU over NBD",
    "QEMU over vhost-user",
    "libvirt",
    "Mount without root",
    "LUKS inside a partition",
    "Look without changing",
    "qcow2",
    "S3 and other web servers",
    "TLS",
    "A container",
    "A Kubernetes pod",
    "Images in CI",
];

/// The blocks of a recipe.
fn recipe(title: &str) -> Vec<Block> {
    assert!(TRIED.contains(&title), "{title} is not on the list");
    let mut found = blocks(PAGE);
    found.retain(|block| block.title == title);
    assert!(!found.is_empty(), "there is no recipe {title:?}");
    found
}

/// Does what the recipe says with these programs, and gives the place as it is then.
#[track_caller]
fn tried<const N: usize>(title: &str, programs: [&str; N]) -> Option<Place> {
    peer::require_all(programs)?;
    let [block] = &recipe(title)[..] else {
        panic!("{title} has several blocks");
    };
    let mut place = Place::new();
    place.prepare(block)?;
    place.follow(block);
    Some(place)
}

#[test]
fn every_recipe_is_tried() {
    let blocks = blocks(PAGE);
    let mut titles: Vec<_> = blocks.iter().map(|block| &*block.title).collect();
    titles.dedup();
    assert_eq!(titles, TRIED);
    for block in &blocks {
        assert!(!block.marks.is_empty(), "{}: nobody tries it", block.title);
    }
    let source = include_str!("recipes.rs");
    for title in TRIED {
        // On the list, and in its test.
        let count = source.matches(&format!("\"{title}\"")).count();
        assert!(count >= 2, "{title}: there is no test");
    }
}

/// A guest has read the first sector, and written it again behind itself.
fn assert_booted(place: &Place) {
    let disk = place.clear();
    assert!(disk[..512] == boot_sector() && disk[512..1024] == boot_sector());
}

#[test]
fn machine_boots_from_the_disk_over_nbd() {
    if let Some(place) = tried("QEMU over NBD", ["qemu-system-x86_64"]) {
        assert_booted(&place);
    }
}

#[test]
fn machine_boots_from_the_disk_over_vhost_user() {
    if let Some(place) = tried("QEMU over vhost-user", ["qemu-system-x86_64"]) {
        assert_booted(&place);
    }
}

#[test]
fn libvirt_takes_the_domains() {
    let Some([validate, _]) = peer::require_all(["virt-xml-validate", "xmllint"]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for block in recipe("libvirt") {
        let path = folder.path().join("domain.xml");
        fs::write(&path, &block.text).unwrap();
        validate.run([path.to_str().unwrap(), "domain"]).success();
        let wrong = block.text.replace("device='disk'", "device='desk'");
        fs::write(&path, wrong).unwrap();
        let refused = validate.run([path.to_str().unwrap(), "domain"]);
        assert!(!refused.status.success(), "{refused}");
    }
}

/// Runs a domain until it has switched itself off, which the program that started it may not notice.
const LIBVIRT: &str = r#"
HOME=$PWD virt-qemu-run --root="$PWD/.tmp/v" domain.xml & domain=$!
until grep -qs 'shutting down' .tmp/v/log/qemu/vm1.log; do kill -0 $domain; sleep 0.05; done
kill -INT $domain || true
wait $domain || true"#;

/// Each beside the server of the recipe before it, as the page says.
#[test]
fn libvirt_runs_the_domains_and_they_boot_from_the_disk() {
    if peer::require_all(["virt-qemu-run", "qemu-system-x86_64", "setpriv"]).is_none() {
        return;
    }
    let servers = ["QEMU over NBD", "QEMU over vhost-user"].map(recipe);
    for (domain, server) in recipe("libvirt").iter().zip(&servers) {
        let mut place = Place::new();
        if place.prepare(&server[0]).is_none() {
            return;
        }
        let folder = place.path("");
        let sockets = domain.text.replace("/run/vm1/", folder.to_str().unwrap());
        // Everywhere the same, whoever may use /dev/kvm.
        let emulated = sockets.replace("type='kvm'", "type='qemu'");
        assert!(emulated != sockets && sockets != domain.text);
        place.write("domain.xml", emulated.as_bytes());
        let serve = &server[0].steps()[0].command;
        // Without its daemon for logs, too.
        fs::create_dir_all(place.path(".tmp/v/etc")).unwrap();
        place.write(".tmp/v/etc/qemu.conf", b"stdio_handler = \"file\"\n");
        let script = format!("{BEGIN}{serve}\n{LIBVIRT}\npid=$(cat *.pid); kill $pid; tail --pid=$pid -f /dev/null\n");
        place.write(".script", script.as_bytes());
        peer::run(&mut place.shell(&server[0], &["bash", ".script"]), READY).success();
        assert_booted(&place);
    }
}

#[test]
fn user_without_rights_changes_a_file_in_the_disk() {
    let programs = ["fusermount3", "fuse2fs", "setpriv"];
    if let Some(place) = tried("Mount without root", programs) {
        let disk = place.clear();
        assert!(disk.windows(8).any(|bytes| bytes == b"changed\n"));
    }
}

#[test]
fn volume_in_a_partition_is_made_and_opened() {
    tried("LUKS inside a partition", ["sfdisk", "nbdinfo"]);
}

#[test]
fn evidence_is_read_and_stays_as_it_is() {
    let programs = ["fusermount3", "fuse2fs", "setpriv", "nbdcopy", "losetup"];
    if peer::require_all(programs).is_none() {
        return;
    }
    for block in recipe("Look without changing") {
        let mut place = Place::new();
        if place.prepare(&block).is_none() {
            continue;
        }
        let before = fs::read(place.path("disk.img")).unwrap();
        place.follow(&block);
        assert!(before == fs::read(place.path("disk.img")).unwrap());
        let clear = fs::read(place.path("clear.raw")).unwrap();
        assert_eq!(clear[..512], boot_sector());
    }
}

#[test]
fn volume_in_a_qcow2_file_is_made_and_opened() {
    tried("qcow2", ["qemu-img", "qemu-nbd", "nbdinfo"]);
}

#[test]
fn disk_on_a_web_server_is_read_in_ranges() {
    let programs = ["nbdkit", "busybox", "unshare", "fusermount3", "fuse2fs"];
    tried("S3 and other web servers", programs);
}

#[test]
fn client_with_its_certificate_connects_through_tls() {
    tried("TLS", ["nbdinfo", "unshare", "busybox"]);
}

#[test]
fn container_serves_without_any_right() {
    tried("A container", ["nbdinfo"]);
}

#[test]
fn image_is_made_of_a_folder_without_rights() {
    let programs = ["debugfs", "mkfs.ext4", "nbdcopy", "setpriv"];
    tried("Images in CI", programs);
}

/// Verifies what the `restricted` pod security standard asks of a container, and a root that nobody writes to.
fn assert_is_restricted(pod: &Value, container: &Value) {
    let whole = &pod["spec"]["securityContext"];
    assert_eq!(whole["runAsNonRoot"], true);
    assert_eq!(whole["seccompProfile"]["type"], "RuntimeDefault");
    let own = &container["securityContext"];
    assert_eq!(own["allowPrivilegeEscalation"], false, "{container}");
    assert_eq!(own["readOnlyRootFilesystem"], true, "{container}");
    assert_eq!(own["capabilities"]["drop"][0], "ALL", "{container}");
    assert!(own.get("privileged").is_none() && own.get("runAsUser").is_none());
}

fn words(list: &Value) -> Vec<String> {
    let list = list.as_array().expect("a command");
    let word = |word: &Value| word.as_str().expect("a word").to_owned();
    list.iter().map(word).collect()
}

/// A container of the pod, run with the rights that it has there: `volumes` are the folders that stand for its volumes.
fn contained(place: &Place, block: &Block, container: &Value) -> Command {
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let bind = |mount: &Value| {
        let [name, path] = ["name", "mountPath"].map(|key| mount[key].as_str().expect("text"));
        format!("{}:{path}", place.path(name).display())
    };
    let mut command = place.shell(block, &["contained"]);
    command.args(mounts.iter().map(bind)).arg("--");
    let mut words = words(&container["command"]);
    if words[0] == "cryptline" {
        "real".clone_into(&mut words[0]);
    }
    command.args(words);
    command
}

#[test]
fn pod_serves_a_disk_to_its_application_without_privileges() {
    let programs = ["python3-yaml", "nbdinfo", "unshare", "setpriv"];
    let Some([python, ..]) = peer::require_all(programs) else {
        return;
    };
    let [block] = &recipe("A Kubernetes pod")[..] else {
        panic!("several blocks");
    };
    let mut place = Place::new();
    if place.prepare(block).is_none() {
        return;
    }
    place.write("pod.yaml", block.text.as_bytes());
    let parse = "import yaml, json, sys; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let parsed = python.run(["-c", parse, place.path("pod.yaml").to_str().unwrap()]);
    let pod: Value = serde_json::from_slice(&parsed.success().stdout).unwrap();
    let server = &pod["spec"]["initContainers"][0];
    let application = &pod["spec"]["containers"][0];
    for container in [server, application] {
        assert_is_restricted(&pod, container);
    }
    let port = &server["startupProbe"]["httpGet"]["port"];
    assert!(words(&server["command"]).contains(&format!("--metrics=0.0.0.0:{port}")));

    for (folder, file) in [("disks", "disk.img"), ("keys", "key"), ("socket", "")] {
        fs::create_dir(place.path(folder)).unwrap();
        if !file.is_empty() {
            fs::rename(place.path(file), place.path(folder).join(file)).unwrap();
        }
    }
    let socket = place.path("socket").join("nbd.sock");
    let serving = BackgroundProgram::spawn(&mut contained(&place, block, server));
    let serving = serving.wait_for_path(&socket, READY);
    let run = peer::run(&mut contained(&place, block, application), READY);
    assert_eq!(run.success().stdout_text(), format!("{SIZE}\n"));
    serving.stop().success();
}

#[test]
fn examples_of_the_readme_run_as_pasted() {
    let programs = ["mkfs.ext4", "qemu-img", "fusermount3"];
    if peer::require_all(programs).is_none() {
        return;
    }
    let mut found = blocks("README.md");
    found.retain(|block| block.says("README"));
    let [block] = &found[..] else {
        panic!("the block with the examples is not there");
    };
    let mut place = Place::new();
    if place.prepare(block).is_some() {
        place.follow(block);
        assert!(fs::read(place.path("clear.raw")).unwrap() == fs::read(place.path("disk.raw")).unwrap());
    }
}

#[test]
fn recipe_waits_until_a_socket_listens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let unready = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&unready, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    // The command before it has ended without a word.
    let script = format!("{BEGIN}true &\nwait\nready socket");
    let is_ready = || {
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]).current_dir(folder.path());
        let run = peer::run(shell.env("PIDFILES", folder.path()), READY);
        run.status.success()
    };
    assert!(!is_ready());
    listen(&unready, 1).unwrap();
    // The system's list may leave a socket out while others come and go, and no command is left that is waited for.
    assert!((0..100).any(|_| is_ready()));
}

#[test]
fn recipe_that_is_killed_leaves_no_mount() {
    if peer::require("fusermount3").is_none() {
        return;
    }
    let place = Place::new();
    let mut mounted = Vec::new();
    for name in ["files", "clear", "mnt"] {
        fs::create_dir(place.path(name)).unwrap();
        let mut mount = Command::new(place.path(".bin/real"));
        mount.args(["mount", "ram:1M"]).arg(place.path(name));
        peer::run(&mut mount, READY).success();
        mounted.push(format!(" {} ", place.path(name).display()));
    }
    let are_there = || {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        mounted.iter().filter(|path| mounts.contains(*path)).count()
    };
    assert_eq!(are_there(), 3);
    drop(place);
    assert_eq!(are_there(), 0);
}

#[test]
fn every_command_of_the_readme_is_one() {
    let mut count = 0;
    for block in blocks("README.md") {
        if block.language != "console" {
            continue;
        }
        for step in block.steps() {
            let command = step.command.split('#').next().unwrap_or_default();
            if command.starts_with("cryptline ") && !command.contains(['\'', '&']) {
                let parsed = Cli::try_parse_from(command.split_whitespace());
                assert!(parsed.is_ok(), "{command}: {parsed:?}");
                count += 1;
            }
        }
    }
    assert!(count >= 7, "{count}");
}

#[test]
fn example_of_the_rust_page_is_one_that_compiles() {
    let blocks = blocks("docs/rust.md");
    let found = blocks.iter().find(|block| block.language == "rust");
    let example = include_str!("../../../cryptline/examples/first_sector.rs");
    let (_, example) = example.split_once("\n\n").unwrap();
    assert_eq!(found.unwrap().text, example);
}
