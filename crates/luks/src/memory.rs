//! How much memory there is, so that a key slot does not drive the machine, or the control group this
//! process is in, into the OOM killer.
//!
//! ```text
//!   machine         /proc/meminfo: MemAvailable + SwapFree
//!   control group   version 2: memory.max and memory.high of this group and all above it
//!                   version 1: memory.limit_in_bytes, likewise
//!   process         RLIMIT_AS, RLIMIT_DATA
//! ```
//!
//! The least of all counts. What a group uses as page cache is given back when it is needed.

use std::fs;
use std::path::{Component, Path, PathBuf};

use rustix::process::{Resource, getrlimit};

const MACHINE: &str = "the machine";

/// Memory that can be had now without killing anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    /// KiB of it.
    pub kib: u64,
    /// Name of the bound that allows no more.
    pub bound: String,
}

/// One of the things that bound memory, in KiB.
struct MemoryBound {
    name: String,
    /// All of it, used or not.
    total: u64,
    /// Part of it that is left.
    left: u64,
    /// Whoever takes more is only slowed down.
    is_soft: bool,
}

/// Returns the memory that can be had now; `None` where the system does not say.
pub(crate) fn available() -> Option<Available> {
    least(bounds(Path::new("/"), process_limits()))
}

/// The same for files in memory, which are in no process, and without the swap space, where others could find them; `None`
/// where the system does not say.
#[must_use]
pub fn available_for_files() -> Option<Available> {
    least(bounds_with(Path::new("/"), [None; 2], Swap::Unused))
}

/// Returns the memory that this process may still have of what its control groups and its own limits allow, whatever
/// the machine has; `None` where nothing limits it.
#[must_use]
pub fn available_within_limits() -> Option<Available> {
    within_limits(Path::new("/"), process_limits())
}

fn within_limits(root: &Path, limits: [Option<u64>; 2]) -> Option<Available> {
    let mut bounds = bounds_with(root, limits, Swap::Unused);
    bounds.retain(|bound| bound.name != MACHINE && !bound.is_soft);
    least(bounds)
}

fn least(bounds: Vec<MemoryBound>) -> Option<Available> {
    let least = bounds.into_iter().min_by_key(|bound| bound.left)?;
    Some(Available { kib: least.left, bound: least.name })
}

/// Physical memory in KiB, or what a control group or limit allows if that is less.
pub(crate) fn total_kib() -> Option<u64> {
    bounds(Path::new("/"), process_limits()).into_iter().map(|bound| bound.total).min()
}

/// The process's own limits in bytes: address space, and data in it.
fn process_limits() -> [Option<u64>; 2] {
    [Resource::As, Resource::Data].map(|resource| getrlimit(resource).current)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Swap {
    Used,
    Unused,
}

/// Everything that bounds memory, by the files below `root`.
fn bounds(root: &Path, limits: [Option<u64>; 2]) -> Vec<MemoryBound> {
    bounds_with(root, limits, Swap::Used)
}

fn bounds_with(root: &Path, limits: [Option<u64>; 2], swap: Swap) -> Vec<MemoryBound> {
    let mut bounds = Vec::new();
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let field = |name| field_kib(&meminfo, name);
    let swap = match swap {
        Swap::Used => field("SwapFree:").unwrap_or(0),
        Swap::Unused => 0,
    };
    if let (Some(total), Some(available)) = (field("MemTotal:"), field("MemAvailable:")) {
        bounds.push(MemoryBound { name: MACHINE.into(), total, left: available.saturating_add(swap), is_soft: false });
    }
    for (hierarchy, group) in groups(root) {
        bounds.extend(group_bounds(hierarchy, &group, swap));
    }
    let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let names = ["the limit of address space", "the limit of data"];
    for ((limit, used), name) in limits.into_iter().zip(["VmSize:", "VmData:"]).zip(names) {
        if let Some(limit) = limit {
            let used = field_kib(&status, used).unwrap_or(0);
            bounds.push(MemoryBound {
                name: name.into(),
                total: limit / 1024,
                left: (limit / 1024).saturating_sub(used),
                is_soft: false,
            });
        }
    }
    bounds
}

fn field_kib(text: &str, name: &str) -> Option<u64> {
    text.lines().find(|line| line.starts_with(name))?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hierarchy {
    V1,
    V2,
}

/// The folders of the control groups that this process is in, the outermost last.
fn groups(root: &Path) -> Vec<(Hierarchy, PathBuf)> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (mine, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let mut groups = Vec::new();
    for mount in mounts.lines().filter_map(CgroupMount::parse) {
        let mut lines = mine.lines().filter_map(|line| group_of(line));
        let Some((_, path)) = lines.find(|(hierarchy, _)| *hierarchy == mount.hierarchy) else {
            continue;
        };
        let top = root.join(mount.point.strip_prefix("/").unwrap_or(mount.point));
        let below = Path::new(path).strip_prefix(mount.root).unwrap_or(Path::new(""));
        // Above a namespace's own top nothing can be looked at.
        let visible = below.components().all(|part| matches!(part, Component::Normal(_)));
        let below = if visible { below } else { Path::new("") };
        let inner = below.ancestors().map(|part| (mount.hierarchy, top.join(part)));
        groups.extend(inner);
    }
    groups
}

/// A line of `/proc/self/cgroup`, if it is about memory: `0::/group` or `4:memory:/group`.
fn group_of(line: &str) -> Option<(Hierarchy, &str)> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let hierarchy = match controllers {
        "" if number == "0" => Hierarchy::V2,
        controllers if controllers.split(',').any(|name| name == "memory") => Hierarchy::V1,
        _ => return None,
    };
    Some((hierarchy, path))
}

/// Where a hierarchy is mounted, and which of its groups is there.
struct CgroupMount<'a> {
    hierarchy: Hierarchy,
    root: &'a Path,
    point: &'a Path,
}

impl<'a> CgroupMount<'a> {
    /// A line of `/proc/self/mountinfo`: `ID PARENT DEVICE ROOT POINT OPTIONS ... - TYPE SOURCE OPTIONS`.
    fn parse(line: &'a str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let hierarchy = match kind.next()? {
            "cgroup2" => Hierarchy::V2,
            "cgroup" if kind.nth(1)?.split(',').any(|name| name == "memory") => Hierarchy::V1,
            _ => return None,
        };
        let mut place = place.split(' ').skip(3);
        Some(Self { hierarchy, root: Path::new(place.next()?), point: Path::new(place.next()?) })
    }
}

/// Bounds of the group in `folder`; none where it has no limit. `swap_free` is the machine's.
fn group_bounds(hierarchy: Hierarchy, folder: &Path, swap_free: u64) -> Vec<MemoryBound> {
    let number = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        Some(text.trim().parse::<u64>().ok()? / 1024)
    };
    let (limits, usage, cache): (&[&str], _, _) = match hierarchy {
        Hierarchy::V2 => (&["memory.max", "memory.high"], "memory.current", ["active_file", "inactive_file"]),
        Hierarchy::V1 => {
            (&["memory.limit_in_bytes"], "memory.usage_in_bytes", ["total_active_file", "total_inactive_file"])
        }
    };
    let Some(usage) = number(usage) else {
        return Vec::new();
    };
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let in_cache = |name: &str| {
        let mut lines = stat.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let cache = cache.into_iter().filter_map(in_cache).sum::<u64>() / 1024;
    let left_of = |limit: u64| limit.saturating_sub(usage).saturating_add(cache.min(usage));
    // Version 2 counts swap apart, version 1 together with memory, if at all.
    let (swap, together) = match hierarchy {
        Hierarchy::V2 => {
            let used = number("memory.swap.current").unwrap_or(0);
            let most = number("memory.swap.max");
            let left = most.map_or(swap_free, |most| most.saturating_sub(used));
            (left.min(swap_free), None)
        }
        Hierarchy::V1 => {
            let used = number("memory.memsw.usage_in_bytes").unwrap_or(0);
            let most = number("memory.memsw.limit_in_bytes");
            let left = most.map(|most| most.saturating_sub(used).saturating_add(cache.min(used)));
            (swap_free, left)
        }
    };
    let bound = |name: &&str| {
        let limit = number(name)?;
        let left = left_of(limit).saturating_add(swap);
        Some(MemoryBound {
            name: "its control group".into(),
            total: limit,
            left: together.map_or(left, |together| left.min(together)),
            is_soft: *name == "memory.high",
        })
    };
    limits.iter().filter_map(bound).collect()
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
