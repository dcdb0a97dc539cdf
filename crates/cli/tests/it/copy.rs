//! `copy` and `create --from` that are stopped or killed: nothing that passes for a volume is left.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::below::TIMEOUT;
use crate::common::*;
use crate::server::noise;
use cryptline_testkit::peer::{BackgroundProgram, Run};
use rustix::process::Signal;

const MIB: usize = 1 << 20;

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).expect("it is there").blocks() * 512
}

/// Makes `disk.luks` of standard input.
fn create_command(folder: &Folder) -> Command {
    let mut command = command();
    command
        .arg("create")
        .arg(folder.path("disk.luks"))
        .args(["--from", "-", "--key-file"])
        .arg(folder.key())
        .args(CHEAP);
    command
}

/// A copy of standard input, which goes on until its other end is closed.
fn endless(command: &mut Command, bytes: &[u8]) -> (BackgroundProgram, fs::File) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    command.stdin(Stdio::from(reader));
    let process = BackgroundProgram::spawn(command);
    let mut writer = fs::File::from(std::os::fd::OwnedFd::from(writer));
    writer.write_all(bytes).expect("it is read");
    (process, writer)
}

/// Waits for an end that is on its way.
fn end(mut process: BackgroundProgram) -> Run {
    assert!(process.wait(TIMEOUT).is_some(), "it still runs");
    process.collect()
}

/// The temporary file of a copy under way, once it has so many bytes of data.
fn unfinished(folder: &Folder, least: u64) -> PathBuf {
    let begin = Instant::now();
    loop {
        if let Some(path) = folder.drafts().first().map(|name| folder.path(name))
            && fs::metadata(&path).is_ok_and(|found| found.blocks() * 512 >= least)
        {
            return path;
        }
        assert!(begin.elapsed() < TIMEOUT, "nothing is written");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn signal_ends_it_with_one_line_and_leaves_nothing() {
    let folder = Folder::new();
    for signal in [Signal::INT, Signal::TERM] {
        let mut create = create_command(&folder);
        let (process, writer) = endless(&mut create, &noise(6 * MIB));
        unfinished(&folder, 4 << 20);
        process.signal(signal);
        let ended = end(process);
        drop(writer);
        refused(ended, 4, "stopped; nothing was kept");
        assert_eq!(folder.files(), [""; 0]);
    }
    // What is there already keeps a part.
    let luks = folder.luks2();
    let mut copy = command();
    copy.args(["copy", "-"]).arg(&luks).arg("--to-key-file").arg(folder.key());
    let (process, writer) = endless(&mut copy, &noise(2 * MIB));
    let begin = Instant::now();
    while allocated(&luks) < (17 << 20) {
        assert!(begin.elapsed() < TIMEOUT, "nothing is written");
        std::thread::sleep(Duration::from_millis(10));
    }
    process.signal(Signal::TERM);
    let ended = end(process);
    drop(writer);
    refused(ended, 4, "luks2.img is incomplete");
}

#[test]
fn killed_copy_leaves_no_volume() {
    let folder = Folder::new();
    let mut create = create_command(&folder);
    let (mut process, writer) = endless(&mut create, &noise(6 * MIB));
    let left = unfinished(&folder, 4 << 20);
    process.kill();
    drop(writer);
    assert!(!folder.path("disk.luks").exists());
    refused(cryptline(["info".as_ref(), left.as_path()]), 4, "not a LUKS");
}
