//! Cost of a table, which depends on its devices, not on its lines. One test, since it counts what the process has.

use std::fs;

use cryptline::{DispatchMode, DispatchOptions, HelperPool, Open, TableLine, Target};
use tempfile::TempDir;

const KEY: &str = "ffeeddccbbaa99887766554433221100f0e0d0c0b0a090807060504030201000";

/// From <linux/sched.h>, in the flags of proc_pid_stat(5).
const PF_EXITING: u64 = 4;

/// Files open and threads running now, less those that the kernel starts for io_uring and ends by itself, and those that
/// are ending: one that was joined may still be listed.
fn in_use() -> [usize; 2] {
    let counts = |stat: &str| {
        let (name, rest) = stat.rsplit_once(')').unwrap();
        let flags: u64 = rest.split_whitespace().nth(6).unwrap().parse().unwrap();
        !name.contains("(iou-") && flags & PF_EXITING == 0
    };
    let threads = fs::read_dir("/proc/self/task").unwrap().filter(|thread| {
        let stat = thread.as_ref().unwrap().path().join("stat");
        fs::read_to_string(stat).is_ok_and(|stat| counts(&stat))
    });
    let threads = threads.count();
    [fs::read_dir("/proc/self/fd").unwrap().count(), threads]
}

/// Lines of one file, each under an IV offset of its own, with one in the clear at the end.
fn table(device: &str, lines: usize) -> String {
    let crypt = |at: usize| format!("{} 8 crypt aes-xts-plain64 {KEY} {at} {device} {}\n", at * 8, (lines - at) * 8);
    let clear = format!("{} 8 linear {device} 0\n", lines * 8);
    (0..lines).map(crypt).chain([clear]).collect()
}

#[test]
fn files_and_threads_of_a_volume_do_not_grow_with_its_lines() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk");
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    let device = path.display().to_string();
    let helpers = HelperPool::new(1);
    let cost = |lines: usize, mode| {
        let before = in_use();
        let target = Target::Table(TableLine::new(table(&device, lines)).unwrap());
        let dispatch = DispatchOptions { both: Some(mode), ..DispatchOptions::default() };
        let open = Open::target(target).dispatch(dispatch);
        let volume = open.helpers(helpers.clone()).open().unwrap();
        assert_eq!(volume.info().segments, lines + 1);
        let opened = in_use();
        let mut lanes: Vec<_> = (0..3).map(|_| volume.blocking().unwrap()).collect();
        let size = usize::try_from(volume.info().size).unwrap();
        let mut data = vec![0; size];
        for (number, lane) in (1..).zip(&mut lanes) {
            lane.write_at(0, &vec![number; size], false).unwrap();
            lane.flush().unwrap();
            lane.read_at(0, &mut data).unwrap();
            assert!(data.iter().all(|&byte| byte == number));
        }
        let after = in_use();
        drop(lanes);
        if mode == DispatchMode::Inline {
            assert!(in_use()[0] > opened[0], "files are kept for lanes to come");
            volume.gate().close_spare();
            assert_eq!(in_use(), opened);
        }
        [0, 1].map(|at| after[at] - before[at])
    };
    // The helpers, which all volumes share.
    cost(1, DispatchMode::Auto);
    for mode in [DispatchMode::Inline, DispatchMode::Auto, DispatchMode::Queue] {
        let few = cost(2, mode);
        assert_eq!(cost(150, mode), few, "{mode}");
        assert!(few[0] > 3, "{mode}: each lane has a file of its own");
    }
}
