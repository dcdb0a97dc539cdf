//! How much memory there is, so that a key slot does not drive the machine into its OOM killer.

use std::fs;

/// Memory that can be had now without killing anything, in KiB: available plus free swap.
/// `None` where the system does not say.
pub(crate) fn available_kib() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let swap = field_kib(&meminfo, "SwapFree:").unwrap_or(0);
    field_kib(&meminfo, "MemAvailable:")?.checked_add(swap)
}

/// Physical memory in KiB, or what the control group allows if that is less.
pub(crate) fn total_kib() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let physical = field_kib(&meminfo, "MemTotal:")?;
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group_bytes = group.and_then(|text| text.trim().parse::<u64>().ok());
    Some(group_bytes.map_or(physical, |bytes| physical.min(bytes / 1024)))
}

fn field_kib(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with(name))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_fields_are_read_in_kib() {
        let text = "MemTotal:       24679868 kB\nMemAvailable:   23999999 kB\n";
        assert_eq!(field_kib(text, "MemAvailable:"), Some(23_999_999));
        assert_eq!(field_kib(text, "SwapFree:"), None);
        assert_eq!(field_kib("MemTotal: lots", "MemTotal:"), None);
    }
}
