//! Where files and folders are made durable: all of it in one place, so that a test can tell what a crash would leave.

use std::fs::File;
use std::io;
use std::path::Path;

/// Makes durable what a file, or a folder, has and what it is.
pub(crate) fn sync_all(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if let Some(synced) = watched::synced(file) {
        return synced;
    }
    cryptline_sys::sync_all(file)
}

/// Makes durable what a file has.
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if let Some(synced) = watched::synced(file) {
        return synced;
    }
    cryptline_sys::sync_data(file)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path).and_then(|folder| sync_all(&folder))
}

/// The machines of tests, which are told of the syncs of what is theirs.
#[cfg(test)]
pub(crate) mod watched {
    use std::fs::File;
    use std::io;
    use std::sync::Mutex;

    use cryptline_testkit::cache::Machine;

    static MACHINES: Mutex<Vec<&'static Machine>> = Mutex::new(Vec::new());

    /// A machine that is told from now on.
    pub(crate) fn machine() -> &'static Machine {
        let machine = Machine::new();
        cryptline_sys::lock(&MACHINES).push(machine);
        machine
    }

    pub(super) fn synced(file: &File) -> Option<io::Result<()>> {
        let machines = cryptline_sys::lock(&MACHINES).clone();
        machines.into_iter().find_map(|machine| machine.synced(file))
    }
}
