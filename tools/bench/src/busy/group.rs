//! A control group, with a limit to a share of a processor where that is wanted, by either version of cgroups (cgroups(7)).
//!
//! Made below the group of this process, or below the nearest one above it whose children the system limits.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result, fail};
use crate::programs;

/// Where the hierarchies are mounted.
const ROOT: &str = "/sys/fs/cgroup";
/// Microseconds of a period, as Kubernetes and systemd have it.
const PERIOD: u32 = 100_000;
const SHELL: &str = "/bin/sh";
/// Joins the group whose `cgroup.procs` comes first, and becomes the program behind it.
const JOIN: &str = "echo 0 >\"$0\" && exec \"$@\"";
/// Beginning of the name of a group, before the process that made it and its own name.
const PREFIX: &str = "cryptline-bench-";
/// How often the removal is tried: a process may be gone before its group knows.
const REMOVALS: u32 = 50;

/// The group; removed when dropped, which takes that nobody is in it.
#[derive(Debug)]
pub struct LimitGroup(PathBuf);

impl LimitGroup {
    /// Makes one whose processes together weigh as much as those of any other, and have `percent` hundredths of a processor
    /// where that is said.
    pub fn make(name: &str, percent: Option<u32>) -> Result<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::below(Path::new(ROOT), &groups, name, percent)
    }

    /// `groups` is what `/proc/self/cgroup` says.
    fn below(root: &Path, groups: &str, name: &str, percent: Option<u32>) -> Result<Self> {
        let mut why = format!("{} has no control group of processors", root.display());
        for (mount, path) in groups.lines().filter_map(|line| hierarchy(root, line)) {
            let own = mount.join(path.trim_start_matches('/'));
            for above in own.ancestors().take_while(|above| above.starts_with(&mount)) {
                match Self::made_in(above, name, percent) {
                    Ok(group) => return Ok(group),
                    Err(error) => why = error.0,
                }
            }
        }
        fail!("no control group can be made: {why}")
    }

    fn made_in(above: &Path, name: &str, percent: Option<u32>) -> Result<Self> {
        remove_orphans(above);
        let folder = above.join(format!("{PREFIX}{}-{name}", std::process::id()));
        let of = |error| Error(format!("{}: {error}", folder.display()));
        fs::create_dir(&folder).map_err(of)?;
        let group = Self(folder.clone());
        let quota = percent.map(|percent| (u64::from(percent) * u64::from(PERIOD) / 100).to_string());
        if folder.join("cpu.max").exists() {
            let quota = quota.unwrap_or_else(|| "max".into());
            fs::write(folder.join("cpu.max"), format!("{quota} {PERIOD}")).map_err(of)?;
        } else if folder.join("cpu.cfs_quota_us").exists() {
            fs::write(folder.join("cpu.cfs_period_us"), PERIOD.to_string()).map_err(of)?;
            fs::write(folder.join("cpu.cfs_quota_us"), quota.unwrap_or_else(|| "-1".into())).map_err(of)?;
        } else {
            fail!("{} does not limit processors", above.display());
        }
        // A group that nobody may enter is none.
        let mut command = vec![SHELL.into(), "-c".into(), ":".into()];
        group.prefix(&mut command);
        programs::run(Path::new(SHELL), &command[1..])?;
        Ok(group)
    }

    /// File that a process joins it by.
    pub fn entry(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// Has `command` join the group before it begins.
    pub fn prefix(&self, command: &mut Vec<OsString>) {
        let entry = self.entry().into();
        command.splice(0..0, [SHELL.into(), "-c".into(), JOIN.into(), entry]);
    }
}

impl Drop for LimitGroup {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Removes the groups of those who were killed. A group that somebody is in cannot be removed.
fn remove_orphans(above: &Path) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')?.0.parse::<u32>().ok());
        if maker.is_some_and(|maker| !Path::new(&format!("/proc/{maker}")).exists()) {
            // Whoever may not is no worse off.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Where the hierarchy of a line of `/proc/self/cgroup` is mounted, and the group in it, if it can limit processors.
fn hierarchy<'a>(root: &Path, line: &'a str) -> Option<(PathBuf, &'a str)> {
    let (_, rest) = line.split_once(':')?;
    match rest.split_once(':')? {
        ("", path) => Some((root.to_owned(), path)),
        (controllers, path) if controllers.split(',').any(|name| name == "cpu") => {
            let mount = root.join(controllers);
            Some((if mount.exists() { mount } else { root.join("cpu") }, path))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_those_that_know_processors() {
        let root = Path::new("/no/such");
        let of = |line| hierarchy(root, line).map(|(mount, path)| (mount.display().to_string(), path));
        assert_eq!(of("0::/a/b"), Some(("/no/such".into(), "/a/b")));
        assert_eq!(of("3:cpu,cpuacct:/a:b"), Some(("/no/such/cpu".into(), "/a:b")));
        for other in ["2:cpuacct:/", "1:cpuset:/", "4:memory:/x", "", "9:name=systemd:/"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn groups_of_those_who_were_killed_are_removed_and_no_other() {
        let root = tempfile::tempdir().expect("a folder");
        let own = format!("{PREFIX}{}-20", std::process::id());
        for name in [&own, "cryptline-bench-4294967295-20", "cryptline-bench-x-20", "other-4294967295-20"] {
            fs::create_dir(root.path().join(name)).expect("room");
        }
        remove_orphans(root.path());
        let left = fs::read_dir(root.path()).expect("a folder").flatten().map(|entry| entry.file_name());
        let mut left: Vec<_> = left.map(|name| name.into_string().expect("text")).collect();
        left.sort();
        let mut wanted = vec![own, "cryptline-bench-x-20".into(), "other-4294967295-20".into()];
        wanted.sort();
        assert_eq!(left, wanted);
    }

    #[test]
    fn a_folder_that_limits_nothing_is_no_group_and_is_left_as_it_was() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir(root.path().join("inner")).expect("room");
        for groups in ["0::/inner\n", "1:cpu:/\n", "", "0::/gone/with/the/wind"] {
            let error =
                LimitGroup::below(root.path(), groups, "x", Some(20)).expect_err("no kernel is behind it").to_string();
            assert!(error.starts_with("no control group can be made: "), "{error}");
        }
        let inside = |path: &Path| fs::read_dir(path).expect("a folder").count();
        assert_eq!((inside(root.path()), inside(&root.path().join("inner"))), (1, 0));
    }
}
