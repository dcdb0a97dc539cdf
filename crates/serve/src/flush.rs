//! Flushes that no client asks for: the last one of a server, above all.
//!
//! A flush that is not answered within the grace was not made, unless the medium still answers reads: then it is slow, and has
//! a minute. A thread that is stuck in the system is left behind.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Fault, Gate, OpenError};
use cryptline_sys::lock;
use rustix::io::Errno;

/// Outcome of a flush: `Ok` if everything that was written is durable; otherwise the name of the first volume that is
/// not, and why.
pub type Flushed = Result<(), (String, Fault)>;

/// A flush that was not made, since the medium did not answer in time.
pub const UNANSWERED: Fault = Fault::Io(Errno::TIMEDOUT);

/// Volumes flushed at a time.
const SIDE_BY_SIDE: usize = 8;
/// So long a flush is waited for before it counts no longer among them: it may be one that never ends.
const SHARE: Duration = Duration::from_millis(250);
/// A flush has so long, however short the grace; and a medium to show that it is slow, not silent.
const LEAST: Duration = Duration::from_secs(1);
/// Waited for the flush of a medium that is only slow: the page cache may hold gigabytes for it.
const LONGEST: Duration = Duration::from_secs(60);

/// A volume that is flushed for the last time.
pub(crate) struct FinalFlush {
    pub name: String,
    pub gate: Gate,
    /// Step before it, on the thread that flushes; and how long it may take.
    pub before: Option<(Before, Duration)>,
}

type Before = Box<dyn FnOnce() + Send>;

/// Flushes every volume, side by side, even after one has failed. Call when no client writes any more. A volume whose medium does
/// not answer within `grace` is left, and not flushed ([`UNANSWERED`]); it keeps none of the others waiting. A medium that still answers
/// reads then has a minute.
pub fn flush_all<'a>(
    volumes: impl IntoIterator<Item = (&'a str, &'a Gate)>,
    backend: BackendChoice,
    grace: Duration,
) -> Flushed {
    let last = |(name, gate): (&str, &Gate)| FinalFlush { name: name.to_owned(), gate: gate.clone(), before: None };
    flush_last(volumes.into_iter().map(last).collect(), backend, grace)
}

/// The same, with something to be done before each.
pub(crate) fn flush_last(volumes: Vec<FinalFlush>, backend: BackendChoice, grace: Duration) -> Flushed {
    let before = volumes.iter().filter_map(|last| Some(last.before.as_ref()?.1)).max();
    let patience = grace.max(LEAST);
    let mut deadline = Instant::now() + patience + before.unwrap_or_default();
    let longest = deadline + LONGEST;
    let (names, gates): (Vec<_>, Vec<_>) = volumes.iter().map(|last| (last.name.clone(), last.gate.clone())).unzip();
    let mut results = vec![None; names.len()];
    let (ended, ends) = mpsc::channel();
    let mut waiting = volumes.into_iter().enumerate();
    let mut running = 0;
    while results.iter().any(Option::is_none) {
        let room = SIDE_BY_SIDE.saturating_sub(running);
        for (index, last) in waiting.by_ref().take(room) {
            start(index, last, backend, ended.clone());
            running += 1;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let left = if waiting.len() > 0 { left.min(SHARE) } else { left };
        match ends.recv_timeout(left) {
            Ok((index, result)) => {
                let result: Result<(), Fault> = result;
                results[index] = Some(result);
                running = running.saturating_sub(1);
            }
            Err(RecvTimeoutError::Timeout) if waiting.len() > 0 => running = 0,
            Err(_) => {
                let open = gates.iter().zip(&results).filter(|(_, result)| result.is_none());
                if Instant::now() >= longest || !any_answers(open.map(|(gate, _)| gate), backend) {
                    break;
                }
                deadline = (Instant::now() + patience).min(longest);
            }
        }
    }
    let unanswered = |result: Option<_>| result.unwrap_or(Err(UNANSWERED));
    let mut ends = names.into_iter().zip(results.into_iter().map(unanswered));
    ends.find_map(|(name, result)| Some((name, result.err()?))).map_or(Ok(()), Err)
}

/// Tells if one of these volumes answers a read, whatever it says.
fn any_answers<'a>(gates: impl Iterator<Item = &'a Gate>, backend: BackendChoice) -> bool {
    let (told, deadline) = (look(gates, backend), Instant::now() + LEAST);
    let mut left = std::iter::repeat_with(|| deadline.saturating_duration_since(Instant::now()));
    left.find_map(|left| told.recv_timeout(left).map_or(Some(false), |answers| answers.then_some(true)))
        .unwrap_or(false)
}

/// Tells if a volume that can be read leaves a read unanswered for so long.
pub(crate) fn is_silent(gate: &Gate, backend: BackendChoice, patience: Duration) -> bool {
    matches!(look([gate].into_iter(), backend).recv_timeout(patience), Err(RecvTimeoutError::Timeout))
}

/// Reads from each of these volumes. Each says that it has answered, or that it cannot be asked, as where others have all
/// connections.
fn look<'a>(gates: impl Iterator<Item = &'a Gate>, backend: BackendChoice) -> mpsc::Receiver<bool> {
    let (tell, told) = mpsc::channel();
    for gate in gates {
        let (gate, tell) = (gate.clone(), tell.clone());
        let look = move || {
            let mut block = vec![0; gate.geometry().logical_block as usize];
            let answered = Blocking::new(&gate, backend).map(|mut volume| volume.read_at(0, &mut block));
            drop(gate);
            // Nobody listens any more where it took too long.
            let _ = tell.send(answered.is_ok());
        };
        // Without a thread to be had, nothing is known.
        let _ = std::thread::Builder::new().name("look".to_owned()).spawn(look);
    }
    told
}

/// Flushes a volume on a thread of its own, which is left behind where that never ends; here, where there can be no more threads.
fn start(index: usize, last: FinalFlush, backend: BackendChoice, ended: mpsc::Sender<(usize, Result<(), Fault>)>) {
    let waiting = Mutex::new(Some(last));
    let work = move || {
        let last = lock(&waiting).take();
        if let Some(FinalFlush { gate, before, .. }) = last {
            if let Some((before, _)) = before {
                before();
            }
            let flushed = flush_now(&gate, backend);
            // Whoever is told of it may open the volume again.
            drop(gate);
            // Nobody listens any more where it took too long.
            let _ = ended.send((index, flushed));
        }
    };
    let work = Arc::new(work);
    let own = Arc::clone(&work);
    if std::thread::Builder::new().name("flush".to_owned()).spawn(move || own()).is_err() {
        work();
    }
}

fn flush_now(gate: &Gate, backend: BackendChoice) -> Result<(), Fault> {
    flush(gate, backend).unwrap_or_else(|error| {
        Err(match error {
            OpenError::Remote { .. } => Fault::Lost,
            _ => Fault::Io(Errno::IO),
        })
    })
}

/// Flushes one volume, whoever writes, and waits for as long as it takes.
///
/// # Errors
/// Where it cannot be asked to: that says nothing of what was written.
pub fn flush(gate: &Gate, backend: BackendChoice) -> Result<Result<(), Fault>, OpenError> {
    if gate.geometry().read_only {
        return Ok(Ok(()));
    }
    Ok(Blocking::new(gate, backend)?.flush())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use cryptline_engine::{Device, Extent, Op, Queue, Ring, Traits};
    use cryptline_testkit::scripted::{answering, geometry};

    use super::*;

    /// A volume that counts its flushes, and one that answers none.
    fn well_and_silent() -> (Gate, Gate, Arc<AtomicUsize>) {
        let flushes: Arc<AtomicUsize> = Arc::default();
        let counter = Arc::clone(&flushes);
        let well = answering(geometry(1 << 20), move |request| {
            counter.fetch_add(usize::from(request.op == Op::Flush), Ordering::Relaxed);
            Some(Ok(()))
        });
        (well, answering(geometry(1 << 20), |_| None), flushes)
    }

    #[test]
    fn media_that_answer_nothing_keep_no_other_from_being_flushed() {
        let (well, silent, flushes) = well_and_silent();
        // More of them than are flushed side by side, in front of all others.
        let many = std::iter::repeat_n(("silent", &silent), 2 * SIDE_BY_SIDE + 1);
        let volumes = many.chain(std::iter::repeat_n(("well", &well), 3));
        let flushed = flush_all(volumes, BackendChoice::Auto, SHARE * 8);
        assert_eq!(flushed, Err(("silent".to_owned(), UNANSWERED)));
        assert_eq!(flushes.load(Ordering::Relaxed), 3);
        assert_eq!(flush_all([("well", &well)], BackendChoice::Auto, Duration::ZERO), Ok(()));
    }

    #[test]
    fn medium_that_is_slow_and_answers_reads_has_more_time() {
        let (go_on, flushed) = mpsc::channel::<()>();
        let flushed = Mutex::new(flushed);
        let go_on = Mutex::new(Some(go_on));
        let slow = answering(geometry(1 << 20), move |request| {
            match request.op {
                // It ends once a read is made, which nobody does within the grace.
                Op::Flush => _ = lock(&flushed).recv(),
                _ => drop(lock(&go_on).take()),
            }
            Some(Ok(()))
        });
        assert_eq!(flush_all([("slow", &slow)], BackendChoice::Auto, Duration::ZERO), Ok(()));
    }

    #[test]
    fn volume_that_cannot_be_asked_is_not_taken_for_silent() {
        let (well, silent, _) = well_and_silent();
        assert!(is_silent(&silent, BackendChoice::Auto, Duration::from_millis(1)));
        let unasked = Gate::new(NoQueue);
        for gate in [&well, &unasked] {
            assert!(!is_silent(gate, BackendChoice::Auto, Duration::from_secs(60)));
        }
        assert!(any_answers([&unasked, &well].into_iter(), BackendChoice::Auto));
        assert!(!any_answers([&unasked].into_iter(), BackendChoice::Auto));
    }

    /// Others have all the queues that there can be.
    struct NoQueue;

    impl Device for NoQueue {
        fn traits(&self) -> Traits {
            Traits::base(geometry(1 << 20))
        }

        fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
            Err(OpenError::Geometry("there is none".to_owned()))
        }

        fn extent(&self, _offset: u64, _len: u64) -> Result<Extent, Fault> {
            unreachable!("nobody asks")
        }
    }

    #[test]
    fn first_volume_that_is_not_durable_is_named_and_all_are_flushed() {
        let (well, silent, flushes) = well_and_silent();
        well.latch();
        let read_only = silent.read_only();
        let (other, _, others) = well_and_silent();
        let volumes = [("read-only", &read_only), ("lost", &well), ("other", &other), ("lost too", &well)];
        let flushed = flush_all(volumes, BackendChoice::Auto, Duration::from_secs(20));
        assert_eq!(flushed, Err(("lost".to_owned(), Fault::Latched)));
        assert_eq!((flushes.load(Ordering::Relaxed), others.load(Ordering::Relaxed)), (0, 1));
    }

    #[test]
    fn volume_that_was_flushed_is_kept_open_by_nobody() {
        for _ in 0..200 {
            let (well, ..) = well_and_silent();
            let (kept, closed) = mpsc::channel::<()>();
            let well = well.keeping(kept);
            let last = FinalFlush { name: String::new(), gate: well, before: None };
            assert_eq!(flush_last(vec![last], BackendChoice::Auto, Duration::ZERO), Ok(()));
            assert_eq!(closed.try_recv(), Err(mpsc::TryRecvError::Disconnected));
        }
    }

    #[test]
    fn volume_is_flushed_behind_what_comes_before() {
        let (well, silent, flushes) = well_and_silent();
        let seen: Arc<AtomicUsize> = Arc::new(AtomicUsize::new(usize::MAX));
        let (before, counted) = (Arc::clone(&seen), Arc::clone(&flushes));
        let note: Before = Box::new(move || before.store(counted.load(Ordering::Relaxed), Ordering::Relaxed));
        // Another volume's clients never leave.
        let stuck: Before = Box::new(|| std::thread::sleep(Duration::from_secs(3600)));
        let last = |name: &str, gate: &Gate, before| FinalFlush {
            name: name.to_owned(),
            gate: gate.clone(),
            before: Some((before, Duration::from_millis(100))),
        };
        let volumes = vec![last("stuck", &silent, stuck), last("well", &well, note)];
        let flushed = flush_last(volumes, BackendChoice::Auto, Duration::ZERO);
        assert_eq!(flushed, Err(("stuck".to_owned(), UNANSWERED)));
        assert_eq!((seen.load(Ordering::Relaxed), flushes.load(Ordering::Relaxed)), (0, 1));
    }
}
