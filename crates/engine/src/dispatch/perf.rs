//! The performance flags of dm-crypt, which tables, LUKS2 headers and command lines have alike.

/// Which flags are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerfFlags {
    /// Encrypt on the submitting CPU.
    pub same_cpu_crypt: bool,
    /// Run the queues at high priority.
    pub high_priority: bool,
    /// Submit writes from the encrypting thread, unsorted.
    pub submit_from_crypt_cpus: bool,
    /// Decrypt inline.
    pub no_read_workqueue: bool,
    /// Encrypt inline.
    pub no_write_workqueue: bool,
}

impl PerfFlags {
    /// The flags by the names that tables have for them, in the kernel's order.
    #[must_use]
    pub fn named(&self) -> [(&'static str, bool); 5] {
        [
            ("same_cpu_crypt", self.same_cpu_crypt),
            ("high_priority", self.high_priority),
            ("submit_from_crypt_cpus", self.submit_from_crypt_cpus),
            ("no_read_workqueue", self.no_read_workqueue),
            ("no_write_workqueue", self.no_write_workqueue),
        ]
    }

    /// The flag that a table has under this name.
    pub fn by_name(&mut self, name: &str) -> Option<&mut bool> {
        Some(match &*name.to_ascii_lowercase() {
            "same_cpu_crypt" => &mut self.same_cpu_crypt,
            "high_priority" => &mut self.high_priority,
            "submit_from_crypt_cpus" => &mut self.submit_from_crypt_cpus,
            "no_read_workqueue" => &mut self.no_read_workqueue,
            "no_write_workqueue" => &mut self.no_write_workqueue,
            _ => return None,
        })
    }

    /// The flags of either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            same_cpu_crypt: self.same_cpu_crypt || other.same_cpu_crypt,
            high_priority: self.high_priority || other.high_priority,
            submit_from_crypt_cpus: self.submit_from_crypt_cpus || other.submit_from_crypt_cpus,
            no_read_workqueue: self.no_read_workqueue || other.no_read_workqueue,
            no_write_workqueue: self.no_write_workqueue || other.no_write_workqueue,
        }
    }

    /// Tells if any flag is about the queue.
    #[must_use]
    pub fn wants_queue(self) -> bool {
        self.same_cpu_crypt || self.high_priority || self.submit_from_crypt_cpus
    }
}
