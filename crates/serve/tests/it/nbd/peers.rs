//! Programs that people use: nbdinfo, nbdcopy, qemu-img, qemu-io, fio.

use std::fs;
use std::time::Duration;

use cryptline_engine::BackendChoice;
use cryptline_engine::base::DirectMode;
use cryptline_testkit::peer::{self, Peer};
use cryptline_testkit::suite::devices;

use crate::common::raw::Raw;
use crate::common::{BACKENDS, Served, Setup, pattern, stack};

const MIB: u64 = 1 << 20;

/// Fails unless a program has said all of it.
#[track_caller]
fn assert_says(text: &str, all: &[&str]) {
    for expected in all {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
}

/// Every stack, dispatch and backend, each freshly served.
fn everywhere(size: u64, check: impl Fn(&Served)) {
    let null = |size| devices::crypt(stack::file(size, DirectMode::Off), &stack::NULL);
    let dispatched =
        |dispatch| [stack::dispatched_over_ram(size, dispatch), stack::dispatched_over_file(size, dispatch)];
    for backend in BACKENDS {
        let bare = [stack::ram(size), null(size)];
        for over in bare.into_iter().chain(stack::DISPATCHES.into_iter().flat_map(dispatched)) {
            let served = Setup::new(over).backend(backend).start();
            check(&served);
        }
    }
}

#[test]
fn nbdinfo_sees_size_flags_and_block_sizes_and_whether_it_may_write() {
    let Some(nbdinfo) = peer::require("nbdinfo") else { return };
    let served = Setup::new(stack::file_read_only(MIB)).start();
    let text = nbdinfo.run([served.uri()]).success().stdout_text();
    assert_says(&text, &["is_read_only: true", "can_trim: false", "can_zero: false"]);
    let served = Setup::new(devices::crypt(stack::ram(8 * MIB), &stack::AES_4096)).start();
    let text = nbdinfo.run([served.uri()]).success().stdout_text();
    let size = format!("export-size: {}", 8 * MIB - 5 * 4096);
    assert_says(
        &text,
        &[
            &size,
            "newstyle-fixed without TLS, using structured packets",
            "contexts:\n\t\tbase:allocation",
            "is_rotational: false",
            "is_read_only: false",
            "can_cache: true",
            "can_df: true",
            "can_fast_zero: true",
            "can_flush: true",
            "can_fua: true",
            "can_multi_conn: true",
            "can_trim: true",
            "can_zero: true",
            "block_size_minimum: 4096",
            "block_size_preferred: 4096",
            "block_size_maximum: 33554432",
        ],
    );
}

#[test]
fn nbdinfo_lists_all_exports() {
    let Some(nbdinfo) = peer::require("nbdinfo") else { return };
    let served = Setup::new(stack::ram(MIB))
        .export("data/with slash", "the data", stack::ram(2 * MIB))
        .export("höhe", "", stack::crypt_over_ram(3 * MIB))
        .start();
    let text = nbdinfo.run(["--list", "--json", &served.uri()]).success().stdout_text();
    assert_says(
        &text,
        &[
            "\"export-name\": \"\"",
            "\"export-name\": \"data/with slash\"",
            "\"description\": \"the data\"",
            "\"export-name\": \"höhe\"",
            "\"export-size\": 1048576",
            "\"export-size\": 2097152",
        ],
    );
    let uri = served.uri_of("data/with%20slash");
    assert_eq!(nbdinfo.run(["--size", &uri]).success().stdout_text().trim(), "2097152");
    nbdinfo.run([served.uri_of("none")]).exited_with(1);
}

#[test]
fn map_of_a_sparse_file_shows_its_holes() {
    let Some([nbdinfo, nbdcopy]) = peer::require_all(["nbdinfo", "nbdcopy"]) else { return };
    let file = || stack::file(4 * MIB, DirectMode::Off);
    for (over, hole) in [
        (devices::crypt(file(), &stack::NULL), Some("hole,zero")),
        (devices::sparse(file(), &stack::AES_4096), Some("hole,zero")),
        // Holes that hold noise are no holes to anybody.
        (devices::crypt(file(), &stack::AES_4096), None),
    ] {
        let served = Setup::new(over).start();
        let source = served.folder().join("mebibyte");
        fs::write(&source, pattern(0, 1 << 20, 1)).expect("written");
        let run = nbdcopy.run([source.as_os_str(), served.uri().as_ref()]);
        run.success();
        let map = nbdinfo.run(["--map", &served.uri()]).success();
        let text = map.stdout_text();
        let rows: Vec<Vec<&str>> = (text.lines()).map(|line| line.split_whitespace().collect()).collect();
        let size = served.gates[0].geometry().size;
        let (rest, all) = ((size - MIB).to_string(), size.to_string());
        let expected = match hole {
            Some(hole) => vec![vec!["0", "1048576", "0", "data"], vec!["1048576", &rest, "3", hole]],
            None => vec![vec!["0", &*all, "0", "data"]],
        };
        assert_eq!(rows, expected, "{text}");
    }
}

#[test]
fn qemu_img_finds_a_sparse_volume_and_one_without_holes_identical() {
    let Some(qemu_img) = peer::require("qemu-img") else { return };
    let served = [false, true].map(|is_full| {
        let (file, path) = stack::file_at(4 * MIB, DirectMode::Off, false);
        if is_full {
            fs::write(&path, vec![0; 4 << 20]).expect("all of it is there");
        }
        let served = Setup::new(devices::crypt(file, &stack::AES_4096)).start();
        let mut client = Raw::connect(&served);
        client.write(MIB, &pattern(0, 1 << 20, 1)).expect("written");
        served
    });
    let [sparse, full] = &served;
    let compare = ["compare", "-f", "raw", "-F", "raw", &sparse.uri(), &full.uri()];
    let said = qemu_img.run(compare).success().stdout_text();
    assert!(said.contains("identical"), "{said}");
}

#[test]
fn nbdcopy_is_byte_exact_both_ways_over_four_connections() {
    let Some(nbdcopy) = peer::require("nbdcopy") else { return };
    everywhere(12 * MIB, |served| {
        let size = usize::try_from(served.gates[0].geometry().size).expect("small");
        let data = pattern(0, size, 3);
        let (source, back) = (served.folder().join("in"), served.folder().join("out"));
        fs::write(&source, &data).expect("written");
        let uri = served.uri();
        for options in [
            &["--connections=4", "--threads=2", "--requests=64"][..],
            &["--synchronous", "--request-size=4096"],
            &["--connections=2", "--request-size=8388608", "--flush"],
        ] {
            let copy = |from: &str, to: &str| {
                let arguments = options.iter().copied().chain([from, to]);
                nbdcopy.run(arguments).success();
            };
            copy(&source.to_string_lossy(), &uri);
            copy(&uri, &back.to_string_lossy());
            assert!(fs::read(&back).expect("read") == data);
            fs::remove_file(&back).expect("removed");
        }
    });
}

#[test]
fn qemu_img_converts_and_compares() {
    let Some(qemu_img) = peer::require("qemu-img") else { return };
    everywhere(12 * MIB, |served| {
        let size = usize::try_from(served.gates[0].geometry().size).expect("small");
        let mut data = pattern(0, size, 4);
        // A range of zeros, which qemu-img writes by WRITE_ZEROES.
        data[2 << 20..5 << 20].fill(0);
        let (source, back) = (served.folder().join("in"), served.folder().join("out"));
        fs::write(&source, &data).expect("written");
        let (uri, source) = (served.uri(), source.to_string_lossy().into_owned());
        let back_path = back.to_string_lossy().into_owned();
        let info = qemu_img.run(["info", "--output=json", &uri]).success();
        let expected = format!("\"virtual-size\": {size}");
        assert!(info.stdout_text().contains(&expected), "{info}");
        let raw = ["convert", "-f", "raw", "-O", "raw"];
        let to = ["-n", "-W", "-m", "16", &source, &uri];
        qemu_img.run(raw.into_iter().chain(to)).success();
        let same = ["compare", "-f", "raw", "-F", "raw", &source, &uri];
        qemu_img.run(same).success();
        qemu_img.run(raw.into_iter().chain([uri.as_str(), &back_path])).success();
        assert!(fs::read(&back).expect("read") == data);
    });
}

#[test]
fn qemu_io_reads_the_patterns_it_wrote() {
    let Some(qemu_io) = peer::require("qemu-io") else { return };
    everywhere(8 * MIB, |served| {
        let commands = [
            "aio_write -P 0x11 0 2M",
            "aio_write -P 0x22 2M 64k",
            "aio_write -P 0x33 3M 4k",
            "aio_flush",
            "write -f -P 0x44 4M 12k",
            // Smaller than a block: QEMU reads, changes and writes.
            "write -P 0x55 4097k 1k",
            "read -P 0x44 4M 1k",
            "read -P 0x55 4097k 1k",
            "read -P 0x44 4098k 10k",
            "read -P 0x11 0 2M",
            "read -P 0x22 2M 64k",
            "read -P 0x33 3M 4k",
            "write -z 1M 128k",
            "read -P 0 1M 128k",
            "read -P 0x11 960k 64k",
            "write -z -u 0 64k",
            "read -P 0 0 64k",
            "discard 3M 64k",
            "flush",
            "read -P 0x11 64k 64k",
        ];
        let mut arguments = vec!["-f", "raw"];
        commands.iter().for_each(|command| arguments.extend(["-c", *command]));
        let uri = served.uri();
        arguments.push(&uri);
        let text = qemu_io.run(arguments).success().stdout_text();
        assert!(!text.contains("verification failed"), "{text}");
        assert!(!text.contains("failed"), "{text}");
    });
}

fn fio_with_nbd() -> Option<Peer> {
    let fio = peer::require("fio")?;
    let engines = fio.run(["--enghelp"]).stdout_text();
    if engines.lines().any(|line| line.trim() == "nbd") {
        return Some(fio);
    }
    peer::skip("this fio has no nbd engine (apt-get install fio)");
    None
}

#[test]
fn fio_verifies_four_jobs_of_32_requests() {
    let Some(fio) = fio_with_nbd() else { return };
    let everyone = |backend| stack::DISPATCHES.map(|dispatch| (backend, dispatch));
    for (backend, dispatch) in BACKENDS.into_iter().flat_map(everyone) {
        for over in [stack::dispatched_over_ram(65 * MIB, dispatch), stack::dispatched_over_file(65 * MIB, dispatch)] {
            let served = Setup::new(over).backend(backend).start();
            for block in ["4k", "512-256k"] {
                run_fio(&fio, &served, block, backend);
            }
        }
    }
}

fn run_fio(fio: &Peer, served: &Served, block: &str, backend: BackendChoice) {
    let smallest = served.gates[0].geometry().logical_block;
    let sizes = match block {
        "4k" => "--bs=4k".to_owned(),
        _ => format!("--bsrange={smallest}-256k"),
    };
    let align = format!("--blockalign={}", smallest.max(512));
    let uri = format!("--uri={}", served.uri());
    let mut command = fio.command();
    command.current_dir(served.folder()).args([
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        &sizes,
        &align,
        "--iodepth=32",
        "--numjobs=4",
        "--size=8m",
        "--offset_increment=16m",
        // Of two writes to one place that are under way together, either may be the last.
        "--serialize_overlap=1",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--group_reporting",
    ]);
    let run = peer::run(&mut command, Duration::from_secs(120)).success();
    let text = run.stdout_text();
    assert!(text.contains("READ:") && text.contains("WRITE:"), "{backend:?} {run}");
    assert!(!run.stderr_text().contains("verify:"), "{run}");
}
