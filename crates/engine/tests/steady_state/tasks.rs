//! The tasks of this process.

use std::collections::{BTreeMap, BTreeSet};

/// How the names of tasks begin that io_uring gives a request to where it would have to wait.
pub const KERNEL_WORKER: &str = "iou-wrk-";

/// The process's tasks, as `name(id)`, with the nanoseconds that each has run.
pub fn tasks() -> BTreeMap<String, u64> {
    let entries = std::fs::read_dir("/proc/self/task").unwrap();
    let task = |entry: std::fs::DirEntry| {
        let file = |name| std::fs::read_to_string(entry.path().join(name)).ok();
        let name = format!("{}({:?})", file("comm")?.trim(), entry.file_name());
        Some((name, file("schedstat")?.split(' ').next()?.parse().ok()?))
    };
    entries.flatten().filter_map(task).collect()
}

/// The process's tasks without workers of the kernel that have slept since `before`: once called up they stay.
pub fn others_than_idle_workers(before: &BTreeMap<String, u64>) -> BTreeSet<String> {
    let has_worked = |(name, time): &(String, u64)| before.get(name) != Some(time);
    let counts = |task: &(String, u64)| !task.0.starts_with(KERNEL_WORKER) || has_worked(task);
    tasks().into_iter().filter(counts).map(|it| it.0).collect()
}
