//! For tests: a process that may have no more threads.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The end of the scarcity.
pub struct Scarce(Sender<()>);

impl Scarce {
    /// Lets threads be made again in a moment.
    pub fn ends_soon(&self) {
        self.0.send(()).expect("who allows it waits");
    }
}

/// The limit of the whole process, put back when dropped.
struct Limited(Rlimit);

impl Limited {
    /// Root's threads may be made all the same.
    fn to_one() -> Self {
        let before = getrlimit(Resource::Nproc);
        setrlimit(Resource::Nproc, Rlimit { current: Some(1), ..before }).expect("it is less");
        Self(before)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        setrlimit(Resource::Nproc, self.0).expect("it was so");
    }
}

/// Runs `test` on a thread that may have none beside it: of a user of this test's own, whose threads are counted alone.
/// `test` must not leave files behind that only root can remove.
pub fn without_threads(test: impl FnOnce(&Scarce) + Send + 'static) {
    static ONE_BY_ONE: Mutex<()> = Mutex::new(());
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (ends, wanted) = channel();
    let (begin, begins) = channel::<()>();
    let tested = std::thread::spawn(move || {
        let user = 0x4000_0000 + std::process::id();
        let begins = begins.recv();
        // SAFETY: the call takes three numbers. It is the kernel's own, which changes the user of this thread alone; the
        // one of the C library would change that of all.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
        if changed != 0 || begins.is_err() {
            return crate::skip("only root may become somebody else");
        }
        test(&Scarce(ends));
    });
    let mut limited = Some(Limited::to_one());
    begin.send(()).expect("it waits");
    while wanted.recv().is_ok() {
        std::thread::sleep(Duration::from_millis(20));
        limited = None;
    }
    drop(limited);
    tested.join().expect("the test itself has said why");
}
