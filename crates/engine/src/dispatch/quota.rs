//! How much processor time the control groups allow, here and in all groups above: `cpu.max` of cgroup v2,
//! `cpu.cfs_quota_us` and `cpu.cfs_period_us` of v1. Only one of the two has the controller.
//!
//! The files stay open, so that they can be read again when the process may open no more.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::thread::sched_getaffinity;

/// Where v2 is mounted, on every system that has it alone, and below which v1 has a folder for each hierarchy.
const ROOT: &str = "/sys/fs/cgroup";
/// Files of a group that make one limit, in the order of `cpu.max`.
const V1: &[&str] = &["cpu.cfs_quota_us", "cpu.cfs_period_us"];
const V2: &[&str] = &["cpu.max"];

/// The limits that bind this process.
pub(super) struct Quota(Vec<Vec<File>>);

impl Quota {
    /// Those of this process; none where there are no groups to be seen.
    pub fn find() -> Self {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::of(Path::new(ROOT), &groups)
    }

    /// `groups` is what `/proc/self/cgroup` says: `ID:CONTROLLERS:PATH`, with no controllers for v2. In a container without a
    /// view of the host's groups, the path may lead nowhere; its root is then what the container has been given.
    fn of(root: &Path, groups: &str) -> Self {
        let limits = groups.lines().filter_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(":/")?;
            match controllers {
                "" => Some(limits(root, group, V2)),
                // Where it shares a hierarchy (`cpu,cpuacct`), this is a link to it.
                _ if controllers.split(',').any(|name| name == "cpu") => Some(limits(&root.join("cpu"), group, V1)),
                _ => None,
            }
        });
        Self(limits.flatten().collect())
    }

    /// Cores' worth of time that this process may use; infinite where nothing limits it.
    pub fn cores(&self) -> f64 {
        self.0.iter().filter_map(|files| cores_of(files)).fold(f64::INFINITY, f64::min)
    }
}

/// The limits of `group` and of all above it, each by its open `files`.
fn limits(root: &Path, group: &str, files: &[&str]) -> Vec<Vec<File>> {
    let group = root.join(group);
    let up = group.ancestors().take_while(|path| path.starts_with(root));
    let open = |path: &Path| files.iter().map(|name| File::open(path.join(name)).ok()).collect();
    up.filter_map(open).collect()
}

fn cores_of(files: &[File]) -> Option<f64> {
    let mut text = String::new();
    for file in files {
        let mut read = [0; 64];
        let len = file.read_at(&mut read, 0).ok()?;
        text += std::str::from_utf8(&read[..len]).ok()?.trim_end();
        text.push(' ');
    }
    parse(&text)
}

/// Cores' worth of time that this process may use: of those that its affinity leaves it, what its control group
/// allows. One where that is not known.
#[must_use]
pub fn usable_cores() -> f64 {
    let cores = sched_getaffinity(None).map_or(1, |set| set.count());
    Quota::find().cores().min(f64::from(cores))
}

/// Microseconds in each period, `150000 100000`, or no limit: `max 100000` or `-1 100000`.
fn parse(text: &str) -> Option<f64> {
    let (quota, period) = text.trim_end().split_once(' ')?;
    let (quota, period): (u32, u32) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0).then(|| f64::from(quota) / f64::from(period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_a_share_of_each_period() {
        assert_eq!(parse("150000 100000\n"), Some(1.5));
        assert_eq!(parse("max 100000\n"), None);
        for other in ["", "1", "1 0", "-1 5", "a b", "1 2 3"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn strictest_group_above_decides_and_is_read_again() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("slice/unit");
        fs::create_dir_all(&inner).unwrap();
        let max = |place: &Path, text: &str| fs::write(place.join("cpu.max"), text).unwrap();
        max(&inner, "max 100000\n");
        max(&root.path().join("slice"), "300000 100000\n");
        max(root.path(), "400000 100000\n");
        let quota = Quota::of(root.path(), "0::/slice/unit\n");
        assert_eq!(quota.cores(), 3.0);
        max(&inner, "50000 100000\n");
        assert_eq!(quota.cores(), 0.5);
        assert_eq!(Quota::of(root.path(), "0::/gone\n").cores(), 4.0);
        // Outside of what can be seen.
        assert!(Quota::of(root.path(), "0::/../../other\n").cores() >= 4.0);
    }

    #[test]
    fn limits_of_the_first_version_are_two_files_a_group() {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().join("cpu");
        let inner = top.join("pods/one");
        fs::create_dir_all(&inner).unwrap();
        let set = |place: &Path, quota: &str| {
            fs::write(place.join("cpu.cfs_quota_us"), quota).unwrap();
            fs::write(place.join("cpu.cfs_period_us"), "50000\n").unwrap();
        };
        set(&inner, "10000\n");
        set(&top.join("pods"), "-1\n");
        set(&top, "100000\n");
        let quota = Quota::of(root.path(), "5:memory:/elsewhere\n4:cpu,cpuacct:/pods/one\n0::/\n");
        assert_eq!(quota.cores(), 0.2);
        set(&inner, "-1\n");
        assert_eq!(quota.cores(), 2.0);
        assert_eq!(Quota::of(root.path(), "1:cpu:/gone\n").cores(), 2.0);
        for others in ["3:cpuset:/pods/one\n", "3:cpuacct:/pods/one\n", "nonsense\n"] {
            assert_eq!(Quota::of(root.path(), others).cores(), f64::INFINITY, "{others}");
        }
        // A quota without its period is none.
        fs::remove_file(top.join("cpu.cfs_period_us")).unwrap();
        assert_eq!(Quota::of(root.path(), "1:cpu:/\n").cores(), f64::INFINITY);
    }
}
