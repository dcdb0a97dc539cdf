//! Volumes on block devices, which differ from files in more than their size: they know of no holes, are
//! claimed, and zero and discard in their own way.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::common::{Folder, cryptline, cryptline_with_input, refused};
use crate::server::{READY, Server, noise, text};
use cryptline_testkit::peer::{self, Peer};
use rustix::fs::{FlockOperation, flock};

const MIB: usize = 1 << 20;
/// Bytes of the devices.
const SIZE: u64 = 48 << 20;
const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];

/// A loop device, gone when this is dropped.
struct Loop {
    losetup: Peer,
    device: String,
    /// The file that it shows.
    file: PathBuf,
}

impl Loop {
    /// A new one with a LUKS2 volume, in sectors of `sector` bytes. `None` where this user may not have one.
    fn new(folder: &Folder, sector: u32, options: &[&str]) -> Option<Self> {
        let losetup = peer::require("losetup")?;
        let file = folder.path("disk");
        let (path, key, size) = (text(&file), text(&folder.key()), SIZE.to_string());
        let create = ["create", "--force", &path, "--key-file", &key, "--size", &size];
        cryptline([&create[..], &CHEAP, options].concat()).success();
        let sector = format!("--sector-size={sector}");
        let made = losetup.run(["--find", "--show", &*sector, &*text(&file)]);
        if !made.status.success() {
            peer::skip("no loop device for this user (run as root)");
            return None;
        }
        Some(Self { device: made.stdout_text().trim().to_owned(), losetup, file })
    }

    /// As arguments want it.
    fn path(&self) -> &Path {
        Path::new(&self.device)
    }

    fn serve(&self, folder: &Folder, options: &[&str]) -> Server {
        let key = text(&folder.key());
        Server::start([&[&*self.device, "--key-file", &key], options].concat())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A test that fails leaves its servers to be killed first; the device goes with the last of them.
        let _ = self.losetup.run(["--detach", &self.device]);
    }
}

/// Every verb of the protocol, with data compared after each.
const EVERY_VERB: &str = r"
import nbd, os, sys
uri, discards = sys.argv[1], sys.argv[2] == 'discards'
h = nbd.NBD()
h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
h.connect_uri(uri)
size = h.get_size()
assert h.can_trim() == discards, h.can_trim()
disk = {}
def check(offset, data):
    assert h.pread(len(data), offset) == data, hex(offset)
M = 1 << 20
data = os.urandom(4 * M)
h.pwrite(data, M)
check(M, data)
small = os.urandom(4096)
h.pwrite(small, 6 * M, nbd.CMD_FLAG_FUA)
check(6 * M, small)
h.flush()
h.cache(2 * M, M)
for flags in (0, nbd.CMD_FLAG_NO_HOLE, nbd.CMD_FLAG_FUA):
    h.pwrite(data[:M], 8 * M)
    h.zero(M // 2, 8 * M, flags)
    check(8 * M, bytes(M // 2) + data[M // 2:M])
try:
    h.zero(M, 8 * M, nbd.CMD_FLAG_FAST_ZERO)
    check(8 * M, bytes(M))
except nbd.Error as error:
    assert error.errno == 'ENOTSUP', error
if discards:
    h.pwrite(data, 12 * M)
    h.trim(M, 13 * M)
    h.trim(M, 14 * M, nbd.CMD_FLAG_FUA)
    check(12 * M, data[:M])
    check(15 * M, data[3 * M:])
seen = []
def status(context, offset, entries, error):
    seen.append((offset, list(entries)))
h.block_status(size, 0, status)
offset, entries = seen[-1]
assert sum(entries[::2]) == size and all(flags == 0 for flags in entries[1::2]), seen
h.pwrite(os.urandom(4096), size - 4096)
try:
    h.set_strict_mode(0)
    h.pread(4096, size)
    raise AssertionError('behind the end')
except nbd.Error as error:
    assert error.errno == 'EINVAL', error
h.flush()
check(M, data)
h.shutdown()
";

#[test]
fn every_verb_of_the_protocol_works_on_a_block_device() {
    let Some(python) = peer::require("python3-libnbd") else {
        return;
    };
    let folder = Folder::new();
    for (sector, cipher_sector) in [(512, "512"), (512, "4096"), (4096, "4096")] {
        let Some(disk) = Loop::new(&folder, sector, &["--sector-size", cipher_sector]) else {
            return;
        };
        for options in [
            &[][..],
            &["--allow-discards"],
            &["--allow-discards", "--zeroes=detect"],
            &["--direct=off", "--io=preadv", "--allow-discards"],
        ] {
            println!("{sector} {cipher_sector} {options:?}");
            let server = disk.serve(&folder, options);
            let discards = if options.contains(&"--allow-discards") { "discards" } else { "none" };
            let mut command = python.command();
            command.args(["-c", EVERY_VERB, &server.uri, discards]);
            peer::run(&mut command, READY).success();
            let said = server.stop();
            assert!(said.status.success(), "the last flush: {said}");
        }
    }
}

#[test]
fn peoples_programs_copy_and_map_a_block_device() {
    let Some([nbdinfo, nbdcopy, qemu_img]) = peer::require_all(["nbdinfo", "nbdcopy", "qemu-img"]) else {
        return;
    };
    let folder = Folder::new();
    for sector in [512, 4096] {
        let Some(disk) = Loop::new(&folder, sector, &[]) else {
            return;
        };
        let server = disk.serve(&folder, &[]);
        let map = nbdinfo.run(["--map", &server.uri]).success().stdout_text();
        let map: Vec<_> = map.split_whitespace().collect();
        assert_eq!(map[2..], ["0", "data"]);
        let info = nbdinfo.run([&*server.uri]).success().stdout_text();
        let least = format!("block_size_minimum: {sector}\n");
        assert!(info.contains(&least), "{info}");
        let size: usize = map[1].parse().unwrap();

        let clear = folder.path("clear");
        let mut data = noise(size);
        // Something for WRITE_ZEROES.
        data[4 * MIB..12 * MIB].fill(0);
        fs::write(&clear, &data).unwrap();
        let (clear, copy) = (text(&clear), text(&folder.path("copy")));
        nbdcopy.run([&*clear, &server.uri]).success();
        let compare = ["compare", "-f", "raw", "-F", "raw", &clear, &server.uri];
        qemu_img.run(compare).success();
        nbdcopy.run([&*server.uri, &copy]).success();
        assert!(fs::read(&copy).unwrap() == data);
        let convert = ["convert", "-f", "raw", "-O", "qcow2", &server.uri, &copy];
        qemu_img.run(convert).success();
        qemu_img.run(["compare", "-F", "qcow2", "-f", "raw", &server.uri, &copy]).success();
        data.reverse();
        fs::write(&clear, &data).unwrap();
        let back = ["convert", "-n", "-f", "raw", "-O", "raw", &clear, &server.uri];
        qemu_img.run(back).success();
        qemu_img.run(compare).success();
        server.stop();
        // What reached the device is what the file below it holds.
        let server = Server::start([&*text(&disk.file), "--key-file", &text(&folder.key()), "--read-only"]);
        qemu_img.run(["compare", "-f", "raw", "-F", "raw", &clear, &server.uri]).success();
        server.stop();
    }
}

#[test]
fn verbs_take_a_block_device_and_say_when_somebody_else_has_it() {
    let folder = Folder::new();
    let Some(disk) = Loop::new(&folder, 512, &[]) else {
        return;
    };
    let key = text(&folder.key());
    let before = fs::read(&disk.file).unwrap();
    let sized = ["create", &disk.device, "--key-file", &key, "--size=20M"];
    refused(cryptline(sized), 1, "leave out --size");
    let again = ["create", &disk.device, "--key-file", &key];
    refused(cryptline(again), 5, "a LUKS header");
    assert!(fs::read(&disk.file).unwrap() == before, "it was left alone");
    let info = cryptline(["info", &disk.device]).success().stdout_text();
    assert!(info.contains("LUKS2"), "{info}");
    folder.check(disk.path()).success();
    let table = cryptline(["table", &disk.device, "--key-file", &key]).success();
    let line = table.stdout_text();
    assert!(line.contains(" crypt aes-xts-plain64 "), "{line}");
    refused(cryptline(["zones", &disk.device]), 1, "has no zones");
    let server = disk.serve(&folder, &[]);
    let second = cryptline(["serve", &disk.device, "--key-file", &key]);
    refused(second, 5, "busy");
    server.stop();
    disk.serve(&folder, &["--read-only"]).stop();
}

/// What it holds is named, and lost only by force; what is left of a copy that fails opens nothing.
#[test]
fn volume_is_made_and_filled_on_a_block_device() {
    let folder = Folder::new();
    let Some(disk) = Loop::new(&folder, 512, &["--luks1"]) else {
        return;
    };
    let (raw, out, key) = (folder.path("raw"), folder.path("out"), folder.key());
    let bytes = noise(3 * MIB);
    fs::write(&raw, &bytes).unwrap();
    let (raw_name, out_name) = (text(&raw), text(&out));
    let key_file = format!("--key-file={}", key.display());
    let to_key_file = format!("--to-key-file={}", key.display());
    let is_copied = || {
        let copy = ["copy", &disk.device, &out_name, "--force", &key_file];
        cryptline(copy).success();
        assert!(fs::read(&out).unwrap()[..bytes.len()] == bytes);
    };
    let create = ["create", &disk.device, &key_file, CHEAP[0], CHEAP[1]];
    let from = [&create[..], &["--from", &raw_name, "--verify"]].concat();
    let encrypt = ["encrypt", &raw_name, &disk.device, &key_file];
    let encrypt = [&encrypt[..], &CHEAP].concat();
    let copy = ["copy", &raw_name, &disk.device, "--encrypt", &to_key_file];
    let before = fs::read(&disk.file).unwrap();
    for command in [&create[..], &from, &encrypt, &copy] {
        refused(cryptline(command), 5, "a LUKS header");
    }
    assert!(fs::read(&disk.file).unwrap() == before, "it was left alone");
    let forced = |command: &[&str]| cryptline([command, &["--force"]].concat());
    forced(&create).success();
    let info = cryptline(["info", &disk.device]).success().stdout_text();
    assert!(info.contains("LUKS2"), "{info}");
    for command in [&from[..], &encrypt] {
        forced(command).success();
        is_copied();
    }
    // More than there is room for is found by the end of a stream only.
    let piped = ["create", &disk.device, &key_file, "--from=-", "--force"];
    let input = vec![7; usize::try_from(SIZE).unwrap()];
    let full = cryptline_with_input([&piped[..], &CHEAP].concat(), &input);
    refused(full, 4, "is incomplete");
    refused(cryptline(["info", &disk.device]), 4, "no LUKS header");
    // Nothing is where nothing is looked for: an empty device needs no force.
    fs::File::options().write(true).open(&disk.file).unwrap().set_len(0).unwrap();
    fs::File::options().write(true).open(&disk.file).unwrap().set_len(SIZE).unwrap();
    cryptline(from).success();
    is_copied();
}

/// The partition of a device, as the kernel has it, gone when this is dropped.
struct Partition<'a>(&'a Loop, Peer);

impl Drop for Partition<'_> {
    fn drop(&mut self) {
        let _ = self.1.run([&*self.0.device, "1"]);
    }
}

#[test]
fn header_in_a_partition_is_changed_under_the_lock_of_the_kernels_own_device_for_it() {
    let Some([addpart, delpart]) = peer::require_all(["addpart", "delpart"]) else {
        return;
    };
    let folder = Folder::new();
    let Some(disk) = Loop::new(&folder, 512, &[]) else {
        return;
    };
    let sectors = (SIZE / 512).to_string();
    addpart.run([&*disk.device, "1", "0", &sectors]).success();
    let partition = Partition(&disk, delpart);
    let own = format!("{}p1", disk.device);
    let Ok(found) = fs::metadata(&own) else {
        return peer::skip("nobody makes devices in /dev here");
    };
    let number = found.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    fs::create_dir_all("/run/cryptsetup").unwrap();
    let lock = format!("/run/cryptsetup/L_{major}:{minor}");
    let lock = fs::File::create(lock).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let target = format!("{}?offset=0", disk.device);
    let change = ["header", "label", &target, "--label=changed"];
    refused(cryptline(change), 5, "another program is reading or writing the header");
    drop(lock);
    cryptline(change).success();
    let info = cryptline(["info", &own]).success().stdout_text();
    assert!(info.contains("changed"), "{info}");
    drop(partition);
    cryptline(change).success();
}

#[test]
fn file_is_not_copied_onto_the_loop_device_that_shows_it() {
    let folder = Folder::new();
    let Some(disk) = Loop::new(&folder, 512, &[]) else {
        return;
    };
    let (file, key) = (text(&disk.file), text(&folder.key()));
    let before = fs::read(&file).expect("the volume");
    for (from, to) in [(&file, &disk.device), (&disk.device, &file)] {
        let raw = cryptline(["copy", from, to, "--force", "--from-raw"]);
        refused(raw, 1, "the same");
        let clear = cryptline(["copy", from, to, "--force", "--key-file", &key]);
        refused(clear, 1, "the same");
    }
    assert!(fs::read(&file).expect("the volume") == before);
}
