//! Blocks smaller than a cipher sector, holes, and targets that others use too, as users and their
//! programs meet them.

use crate::server;
use std::fs;
use std::path::Path;

use crate::common::{Folder, cryptline, refused};
use crate::server::{Server, text, value};
use cryptline_testkit::peer;

/// A mode that is cut as one likes and one that is not, both in sectors of 4096 bytes.
const XTS: [&str; 1] = ["--sector-size=4096"];
const CBC: [&str; 3] = ["--sector-size=4096", "--cipher=aes-cbc-essiv:sha256", "--key-size=256"];
const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];

fn volume(folder: &Folder, name: &str, layout: &[&str]) -> String {
    text(&folder.create(name, &[layout, &CHEAP].concat()))
}

fn serve(folder: &Folder, image: &str, options: &[&str]) -> Server {
    let key = text(&folder.key());
    let arguments = [&[image, "--key-file", &key], options].concat();
    Server::start(arguments)
}

/// Runs qemu-io's commands on a disk; each `read -P` checks what it reads.
#[track_caller]
fn qemu_io(qemu_io: &peer::Peer, uri: &str, commands: &[&str]) {
    let commands = commands.iter().flat_map(|command| ["-c", command]);
    let run = qemu_io.run(["-f", "raw", uri].into_iter().chain(commands)).success();
    let said = run.stdout_text();
    assert!(!said.contains("fail"), "{said}");
}

#[test]
fn what_is_written_in_small_pieces_is_read_by_whole_sectors() {
    let Some([io, nbdinfo]) = peer::require_all(["qemu-io", "nbdinfo"]) else {
        return;
    };
    let folder = Folder::new();
    for (name, layout, how, least) in
        [("xts", &XTS[..], "overwritten alone", 512), ("cbc", &CBC[..], "rewrites its 4096 bytes", 4096)]
    {
        let image = volume(&folder, name, layout);
        for policy in ["shared", "exclusive"] {
            let options = ["--logical-block=512", "--subblock", policy];
            let server = serve(&folder, &image, &options);
            let blocks = value(&server.process.stdout_text(), "blocks");
            assert!(blocks.starts_with("512 bytes") && blocks.contains(how), "{blocks}");
            let info = nbdinfo.run(["--json", &server.uri]).success().stdout_text();
            assert!(info.contains("\"block_size_minimum\": 512"), "{info}");
            qemu_io(
                &io,
                &server.uri,
                &[
                    "write -P 0x10 0 64k",
                    "aio_write -P 0x11 512 512",
                    "aio_write -P 0x12 1024 512",
                    "aio_write -P 0x13 3584 5120",
                    "aio_write -P 0x14 9216 512",
                    "aio_flush",
                    "write -f -P 0x15 13k 7k",
                    "read -P 0x11 512 512",
                    "flush",
                ],
            );
            server.stop();
            let server = serve(&folder, &image, &[]);
            let expected = [
                "read -P 0x10 0 512",
                "read -P 0x11 512 512",
                "read -P 0x12 1024 512",
                "read -P 0x10 1536 2048",
                "read -P 0x13 3584 5120",
                "read -P 0x10 8704 512",
                "read -P 0x14 9216 512",
                "read -P 0x10 9728 3584",
                "read -P 0x15 13k 7k",
                "read -P 0x10 20k 44k",
            ];
            qemu_io(&io, &server.uri, &expected);
            let info = nbdinfo.run(["--json", &server.uri]).success().stdout_text();
            let least = format!("\"block_size_minimum\": {least},");
            assert!(info.contains(&least), "{info}");
            assert!(info.contains("\"block_size_preferred\": 4096"), "{info}");
            server.stop();
        }
    }
}

/// As Debian's nbd-client and its like: what they are not told they can not know.
const NEVER_ASKS: &str = r"
import nbd, os, sys
h = nbd.NBD()
h.set_request_block_size(False)
h.set_strict_mode(0)
h.connect_uri(sys.argv[1])
assert h.get_block_size(nbd.SIZE_MINIMUM) == 0
data = bytearray(os.urandom(16384))
h.pwrite(data, 0)
for at in (512, 4096 + 3584, 8192):
    data[at:at + 512] = os.urandom(512)
    h.pwrite(data[at:at + 512], at)
assert h.pread(16384, 0) == data
h.shutdown()
";

#[test]
fn clients_that_never_ask_for_block_sizes_are_served_or_told() {
    let Some(python) = peer::require("python3-libnbd") else {
        return;
    };
    let folder = Folder::new();
    let ask = |server: &Server| {
        let mut command = python.command();
        command.args(["-c", NEVER_ASKS, &server.uri]);
        peer::run(&mut command, server::READY)
    };
    let (xts, cbc) = (volume(&folder, "xts", &XTS), volume(&folder, "cbc", &CBC));
    for image in [&xts, &cbc] {
        let server = serve(&folder, image, &[]);
        ask(&server).success();
        let said = server.stop().stderr_text();
        assert_eq!(said.contains("nbd-client: -b 4096"), image == &cbc, "{said}");
    }
    ask(&Server::start(["ram:8M"])).success();
    // Where small blocks were ruled out, or could not be made safe.
    for option in ["--logical-block=4096", "--shared"] {
        let server = serve(&folder, &cbc, &[option]);
        let refused = ask(&server).exited_with(1);
        assert!(refused.stderr_text().contains("block size"), "{refused}");
        let said = server.stop().stderr_text();
        assert!(said.contains("serve the volume with --logical-block 512"), "{said}");
    }
}

#[test]
fn rewriting_warns_of_crashes_unless_the_medium_is_atomic() {
    let folder = Folder::new();
    for (name, layout, warns) in [("xts", &XTS[..], false), ("cbc", &CBC[..], true)] {
        let image = volume(&folder, name, layout);
        let server = serve(&folder, &image, &["--logical-block=1024"]);
        let said = server.stop().stderr_text();
        assert_eq!(said.contains("can damage its neighbours"), warns, "{said}");
    }
}

#[test]
fn sparse_image_is_all_zeros_with_detect_and_noise_without() {
    let Some([io, nbdinfo]) = peer::require_all(["qemu-io", "nbdinfo"]) else {
        return;
    };
    let folder = Folder::new();
    let image = text(&folder.path("sparse"));
    let file = fs::File::create(&image).unwrap();
    file.set_len(8 << 20).unwrap();
    let key = text(&folder.path("volume-key"));
    fs::write(&key, [7; 64]).unwrap();
    let plain = [
        &*image,
        "--type=plain",
        "--cipher=aes-xts-plain64",
        "--key-size=512",
        "--sector-size=4096",
        "--key-file",
        &key,
        "--allow-discards",
    ];
    let with = |more: &[&'static str]| Server::start([&plain[..], more].concat());
    let server = with(&["--zeroes=detect", "--logical-block=512"]);
    let map = nbdinfo.run(["--map", "--totals", &server.uri]).success();
    assert!(map.stdout_text().contains("100.0%"), "{map}");
    qemu_io(
        &io,
        &server.uri,
        &[
            "read -P 0 0 8M",
            // The first write into a hole needs nothing beside it.
            "write -P 0x21 5k 512",
            "write -P 0 8k 4k",
            "write -P 0x22 1M 64k",
            "discard 1M 32k",
            "read -P 0 4k 1k",
            "read -P 0x21 5k 512",
            "read -P 0 5632 3k",
            "read -P 0 1M 32k",
            "read -P 0x22 1056k 32k",
            "write -z -u 1056k 16k",
            "read -P 0 1056k 16k",
        ],
    );
    server.stop();
    let server = with(&[]);
    let copy = text(&folder.path("copy"));
    let nbdcopy = peer::require_all(["nbdcopy"]);
    let Some([nbdcopy]) = nbdcopy else { return };
    nbdcopy.run([&server.uri, &copy]).success();
    server.stop();
    let clear = fs::read(copy).unwrap();
    assert!(clear[4 << 20..].iter().any(|byte| *byte != 0), "holes are noise");
    // What was written as zeros is ciphertext, not a hole.
    assert!(clear[8192..8192 + 4096].iter().all(|byte| *byte == 0));
}

/// Zeros are data like any other, and show on the medium only where unused blocks may show.
#[test]
fn zeroing_shows_on_the_medium_only_with_discards() {
    let Some(python) = peer::require("python3-libnbd") else {
        return;
    };
    let folder = Folder::new();
    let key = text(&folder.path("volume-key"));
    fs::write(&key, [7; 64]).unwrap();
    let zero = r"
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
h.pwrite(b'\x55' * (4 << 20), 0)
h.zero(1 << 20, 0)
h.zero(1 << 20, 1 << 20, nbd.CMD_FLAG_NO_HOLE)
h.zero(1 << 20, 2 << 20, nbd.CMD_FLAG_FUA)
try:
    h.zero(1 << 20, 3 << 20, nbd.CMD_FLAG_FAST_ZERO)
    fast = 4
except nbd.Error as error:
    assert error.errno == 'ENOTSUP', error
    fast = 3
assert h.pread(fast << 20, 0) == bytes(fast << 20)
h.shutdown()
";
    for zeroes in ["detect", "decrypt"] {
        for discards in [false, true] {
            let image = text(&folder.path("disk"));
            fs::write(&image, server::noise(4 << 20)).unwrap();
            let mut arguments = vec![&*image, "--type=plain", "--key-file", &key, "--zeroes", zeroes];
            arguments.extend(["--cipher=aes-xts-plain64", "--key-size=512"]);
            arguments.extend(discards.then_some("--allow-discards"));
            let server = Server::start(arguments);
            let mut command = python.command();
            command.args(["-c", zero, &server.uri]);
            peer::run(&mut command, server::READY).success();
            server.stop();
            let medium = fs::read(&image).unwrap();
            let places: Vec<_> = medium.chunks(512).collect();
            let zeros = places.iter().filter(|place| **place == [0; 512]).count();
            let expected = if zeroes == "detect" && discards { places.len() } else { 0 };
            assert_eq!(zeros, expected, "{zeroes} {discards}");
        }
    }
}

#[test]
fn shared_target_is_opened_beside_others_and_alone_it_is_not() {
    let folder = Folder::new();
    let image = volume(&folder, "xts", &XTS);
    let first = serve(&folder, &image, &["--shared", "--logical-block=512"]);
    let second = serve(&folder, &image, &["--shared"]);
    second.stop();
    let key = text(&folder.key());
    let third = cryptline(["serve", &image, "--key-file", &key]);
    refused(third, 5, "in use");
    first.stop();
    serve(&folder, &image, &[]).stop();
}

#[test]
fn what_can_not_be_is_refused_in_one_line() {
    let folder = Folder::new();
    let xts = volume(&folder, "xts", &XTS);
    let cbc = volume(&folder, "cbc", &CBC);
    let key = text(&folder.key());
    let refuse = |image: &str, options: &[&str], code, why: &str| {
        let before = fs::read(Path::new(image)).unwrap_or_default();
        let run = [&["serve", image, "--key-file", &key], options].concat();
        refused(cryptline(run), code, why);
        assert!(fs::read(image).unwrap_or_default() == before, "something was written");
    };
    for block in ["0", "256", "600", "8192"] {
        let option = format!("--logical-block={block}");
        refuse(&xts, &[&option], 1, "give a power of two from 512");
    }
    refuse(&cbc, &["--logical-block=512", "--shared"], 1, "cannot be made safe");
    let ram = cryptline(["serve", "ram:1M", "--shared"]);
    refused(ram, 1, "leave out --shared");
}
