//! Keeps key memory of this process out of other hands.

use rustix::process::{DumpableBehavior, Resource, getrlimit, set_dumpable_behavior, setrlimit};

/// No core dump of this process, and no other process of the same user may look into its memory.
///
/// Best effort: locked and wiped key memory does not depend on it.
pub fn protect_process() {
    let mut core = getrlimit(Resource::Core);
    core.current = Some(0);
    let _ = setrlimit(Resource::Core, core);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
