//! fio writes, and reads back what it has written, while a test disturbs what lies below.

use std::path::Path;
use std::time::Duration;

use cryptline_testkit::peer::{BackgroundProgram, Peer};
use rustix::process::Signal;

const TIMEOUT: Duration = Duration::from_secs(240);

/// Verifies that a load on the disk at `uri` notices nothing of what `disturb` does meanwhile, and that one that comes
/// to its end then finds what it has written.
pub fn outlasts(fio: &Peer, folder: &Path, uri: &str, disturb: impl FnOnce()) {
    let uri = format!("--uri={uri}");
    let load = |loops: &str| {
        let mut command = fio.command();
        command.current_dir(folder).args([
            "--name=load",
            "--ioengine=nbd",
            &uri,
            "--rw=randwrite",
            "--bs=16k",
            "--iodepth=8",
            "--size=8M",
            loops,
            "--verify=crc32c",
            "--verify_state_save=0",
            "--output-format=terse",
        ]);
        BackgroundProgram::spawn(&mut command)
    };
    // It lasts until it is told to end, so it runs while it is disturbed, however fast this machine is.
    let mut long = load("--loops=1000000");
    disturb();
    let early = long.wait(Duration::ZERO);
    assert!(early.is_none(), "it ended early:\n{}", long.collect());
    long.signal(Signal::INT);
    let ended = long.wait(TIMEOUT);
    assert!(ended.is_some(), "the load hangs:\n{}", long.collect());
    let long = long.collect();
    let asked = long.status.code() == Some(128) && long.stdout_text().contains(";load;0;0;");
    assert!(asked, "{long}");
    let mut short = load("--loops=1");
    let ended = short.wait(TIMEOUT);
    assert!(ended.is_some(), "the load hangs:\n{}", short.collect());
    short.collect().success();
}
