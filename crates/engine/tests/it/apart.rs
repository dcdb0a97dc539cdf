//! Disks that share a thread: what one is asked in a system call keeps no other waiting.

use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::{BackendChoice, Buffer, Channel, Completion, Fault, Gate, Request, Submitted};
use cryptline_sys::{Io, SimulatedKernel, Simulation, lock};
use cryptline_testkit::suite::{Watchdog, devices};
use rustix::io::Errno;

/// A kernel in which all is well, but who syncs by a system call waits until the test says how that ends.
#[derive(Default)]
struct Hangs {
    end: Mutex<Option<Result<usize, Errno>>>,
    is_known: Condvar,
}

impl Hangs {
    fn end(&self, result: Result<usize, Errno>) {
        *lock(&self.end) = Some(result);
        self.is_known.notify_all();
    }
}

impl SimulatedKernel for Hangs {
    fn run(&self, _: &OwnedFd, io: &mut Io) -> Result<usize, Errno> {
        Ok(match io {
            Io::Read { len, .. } | Io::Write { len, .. } => *len,
            _ => 0,
        })
    }

    fn run_at_once(&self, _: &OwnedFd, _: &mut Io) -> Result<usize, Errno> {
        let end = lock(&self.end);
        let end = self.is_known.wait_while(end, |end| end.is_none());
        end.unwrap_or_else(PoisonError::into_inner).expect("it is known")
    }
}

fn next(channel: &mut Channel, device: usize, request: Request) -> Completion {
    let mut done = Vec::new();
    if let Submitted::Done(completion) = channel.submit_to(device, request) {
        return completion;
    }
    while done.is_empty() {
        channel.wait(&mut done).expect("it waits");
    }
    done.remove(0)
}

#[test]
fn flush_that_a_silent_medium_must_vouch_for_keeps_no_other_disk_waiting() {
    let _watchdog = Watchdog::start(Duration::from_secs(60));
    for (end, flushed, again) in
        [(Ok(0), Ok(()), Ok(())), (Err(Errno::IO), Err(Fault::Io(Errno::IO)), Err(Fault::Latched))]
    {
        let kernel: &Hangs = Box::leak(Box::default());
        let files = [(); 2].map(|()| devices::image_file());
        let [first, second] = files.each_ref().map(|(path, _)| {
            let image = Image::open(path, false).expect("an image");
            Gate::new(image.into_device(512, DirectMode::Off).expect("a device"))
        });
        let backend = BackendChoice::Simulated(Simulation::new(kernel));
        let mut channel = Channel::open_apart(&first, &[second], backend, 8).expect("a channel");
        assert!(matches!(channel.submit_to(0, Request::flush(7)), Submitted::Pending));
        // Their answers come before that of the flush, which was made, and which the keeper of the file is asked about.
        for token in 0..3 {
            let read = Request::read(0, Buffer::alloc(512).expect("memory"), token);
            let done = next(&mut channel, 1, read);
            assert_eq!((done.request.token, done.result), (token, Ok(())));
        }
        kernel.end(end);
        let mut done = Vec::new();
        while done.is_empty() {
            channel.wait(&mut done).expect("it waits");
        }
        assert_eq!((done[0].request.token, done[0].result), (7, flushed));
        assert_eq!(next(&mut channel, 0, Request::flush(8)).result, again);
    }
}
