//! How much processor time the control group allows: `cpu.max` of cgroup v2, here and in all groups
//! above.
//!
//! The files stay open, so that they can be read again when the process may open no more.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::thread::sched_getaffinity;

/// Where the hierarchy is mounted, on every system that has one alone.
const ROOT: &str = "/sys/fs/cgroup";

/// The limits that bind this process.
pub(super) struct Quota(Vec<File>);

impl Quota {
    /// Those of this process; none where there is no cgroup v2 to be seen.
    pub fn find() -> Self {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::of(Path::new(ROOT), &groups)
    }

    /// `groups` is what `/proc/self/cgroup` says. In a container without a view of the host's groups, the
    /// path may lead nowhere; its root is then what the container has been given.
    fn of(root: &Path, groups: &str) -> Self {
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        let Some(group) = group else {
            return Self(Vec::new());
        };
        let group = root.join(group);
        let up = group.ancestors().take_while(|path| path.starts_with(root));
        let files = up.filter_map(|path| File::open(path.join("cpu.max")).ok());
        Self(files.collect())
    }

    /// Cores' worth of time that this process may use; infinite where nothing limits it.
    pub fn cores(&self) -> f64 {
        let limits = self.0.iter().filter_map(|file| {
            let mut text = [0; 64];
            let len = file.read_at(&mut text, 0).ok()?;
            parse(std::str::from_utf8(&text[..len]).ok()?)
        });
        limits.fold(f64::INFINITY, f64::min)
    }
}

/// Cores' worth of time that this process may use: of those that its affinity leaves it, what its control group
/// allows. One where that is not known.
#[must_use]
pub fn usable_cores() -> f64 {
    let cores = sched_getaffinity(None).map_or(1, |set| set.count());
    Quota::find().cores().min(f64::from(cores))
}

/// `max 100000`, or microseconds in each period: `150000 100000`.
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
        // Of the first version alone, or outside of what can be seen.
        assert_eq!(Quota::of(root.path(), "4:cpu:/\n").cores(), f64::INFINITY);
        assert!(Quota::of(root.path(), "0::/../../other\n").cores() >= 4.0);
    }
}
