//! For tests: a process that may have no more threads.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What ends the scarcity.
pub struct Scarce(Sender<()>);

impl Scarce {
    /// Lets threads be made again in a moment.
    pub fn ends_soon(&self) {
        self.0.send(()).expect("who allows it waits");
    }
}

/// Runs `test` on a thread that may have none beside it: of a user of this test's own, whose threads are counted alone.
/// `test` must not leave files behind that only root can remove.
pub fn without_threads(test: impl FnOnce(&Scarce) + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root may become somebody else");
    }
    let before = getrlimit(Resource::Nproc);
    // Root's threads may be made all the same.
    setrlimit(Resource::Nproc, Rlimit { current: Some(1), ..before }).expect("it is less");
    let (ends, wanted) = channel();
    let tested = std::thread::spawn(move || {
        let user = 0x4000_0000 + std::process::id();
        // SAFETY: the call takes three numbers. It is the kernel's own, which changes the user of this thread alone; the
        // one of the C library would change that of all.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
        assert_eq!(changed, 0, "root may become anybody");
        test(&Scarce(ends));
    });
    while wanted.recv().is_ok() {
        std::thread::sleep(Duration::from_millis(20));
        setrlimit(Resource::Nproc, before).expect("it was so");
    }
    tested.join().expect("the test itself has said why");
}
