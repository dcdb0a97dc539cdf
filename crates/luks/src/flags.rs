//! The activation flags that a LUKS2 header can keep (`cryptsetup open --persistent`).

/// How the volume asks to be opened. LUKS1 has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Discards are passed down: the backing device sees which blocks are free.
    pub allow_discards: bool,
    /// Reads are decrypted without a work queue.
    pub no_read_workqueue: bool,
    /// Writes are encrypted without a work queue.
    pub no_write_workqueue: bool,
    /// Requests are encrypted on the CPU that submits them.
    pub same_cpu_crypt: bool,
    /// Encrypted writes are submitted from the CPU that encrypted them.
    pub submit_from_crypt_cpus: bool,
    /// Crypto work runs at high priority.
    pub high_priority: bool,
    /// Others, which change nothing here.
    pub other: Vec<String>,
}

impl Flags {
    pub(crate) fn of(names: &[String]) -> Self {
        let mut flags = Self::default();
        for name in names {
            match name.as_str() {
                "allow-discards" => flags.allow_discards = true,
                "no-read-workqueue" => flags.no_read_workqueue = true,
                "no-write-workqueue" => flags.no_write_workqueue = true,
                "same-cpu-crypt" => flags.same_cpu_crypt = true,
                "submit-from-crypt-cpus" => flags.submit_from_crypt_cpus = true,
                "high-priority" | "high_priority" => flags.high_priority = true,
                other => flags.other.push(other.to_owned()),
            }
        }
        flags
    }
}
