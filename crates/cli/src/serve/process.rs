//! Figures of the process itself, under the names that every Prometheus client library gives them.
//!
//! Files of /proc are opened before the sandbox closes: a confined server opens none. What this system does not tell is
//! left out: without /proc there is no memory, and before Linux 6.2 no count of descriptors.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// A value with its name, kind and meaning.
pub struct ProcessFigure {
    /// Standard name.
    pub name: &'static str,
    /// Prometheus' type.
    pub kind: &'static str,
    /// Meaning, for people.
    pub help: &'static str,
    /// Value of this moment.
    pub value: f64,
}

/// This process.
pub struct OwnProcess {
    started: SystemTime,
    memory: Option<File>,
    /// The folder of its descriptors; fstat(2) counts them.
    descriptors: Option<OwnedFd>,
}

impl OwnProcess {
    /// Call before rights are given up; the server starts now.
    pub fn new() -> Self {
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self {
            started: SystemTime::now(),
            memory: File::open("/proc/self/statm").ok(),
            descriptors: open("/proc/self/fd", folder, Mode::empty()).ok(),
        }
    }

    /// Returns what is known.
    pub fn figures(&self) -> impl Iterator<Item = ProcessFigure> {
        let gauge = |name, help, value: Option<f64>| Some(ProcessFigure { name, kind: "gauge", help, value: value? });
        let since = self.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let processor = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
        let [whole, resident] = self.memory_bytes().map_or([None; 2], |both| both.map(Some));
        [
            gauge(
                "process_start_time_seconds",
                "When the server started, in seconds since 1970.",
                Some(since.as_secs_f64()),
            ),
            Some(ProcessFigure {
                name: "process_cpu_seconds_total",
                kind: "counter",
                help: "Processor time of all threads, user and system.",
                value: processor.as_secs_f64(),
            }),
            gauge("process_resident_memory_bytes", "Memory in use.", resident),
            gauge("process_virtual_memory_bytes", "Address space in use.", whole),
            gauge("process_open_fds", "Open file descriptors.", self.descriptor_count()),
            gauge(
                "process_max_fds",
                "Maximum number of open file descriptors.",
                Some(getrlimit(Resource::Nofile).current.map_or(f64::INFINITY, super::metrics::float)),
            ),
        ]
        .into_iter()
        .flatten()
    }

    /// All of it, and what of it is in memory.
    fn memory_bytes(&self) -> Option<[f64; 2]> {
        let mut text = [0; 256];
        let length = self.memory.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let mut pages = text.split(' ').map_while(|word| word.parse::<u64>().ok());
        let mut next = || Some(super::metrics::float(pages.next()?.saturating_mul(page_size() as u64)));
        Some([next()?, next()?])
    }

    fn descriptor_count(&self) -> Option<f64> {
        let size = fstat(self.descriptors.as_ref()?).ok()?.st_size;
        u64::try_from(size).ok().filter(|&count| count > 0).map(super::metrics::float)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(process: &OwnProcess, name: &str) -> Option<f64> {
        process.figures().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    #[test]
    fn figures_follow_what_the_process_does() {
        let process = OwnProcess::new();
        let before = process.descriptor_count();
        let _open: Vec<_> = (0..500).map(|_| File::open("/dev/null").unwrap()).collect();
        if let (Some(before), Some(after)) = (before, process.descriptor_count()) {
            // Other tests of this process open and close some.
            assert!(after > before + 300.0, "{before} {after}");
        }
        let memory = |name| value(&process, name).unwrap();
        let (resident, whole) = (memory("process_resident_memory_bytes"), memory("process_virtual_memory_bytes"));
        assert!(1e6 < resident && resident <= whole, "{resident} {whole}");
        let busy = value(&process, "process_cpu_seconds_total").unwrap();
        let mut sum = 0u64;
        while value(&process, "process_cpu_seconds_total").unwrap() <= busy {
            sum = std::hint::black_box(sum.wrapping_mul(3));
        }
        assert!(value(&process, "process_max_fds").unwrap() >= 500.0);
    }

    #[test]
    fn what_cannot_be_had_is_left_out() {
        let process = OwnProcess { memory: None, descriptors: None, ..OwnProcess::new() };
        let names: Vec<_> = process.figures().map(|figure| figure.name).collect();
        assert_eq!(names, ["process_start_time_seconds", "process_cpu_seconds_total", "process_max_fds"]);
    }
}
