//! A worker pool: threads that sleep until there is work, and share one list of it.
//!
//! ```text
//! hand out ─► todo ─► the first thread that is awake, or one that is woken
//! ```
//!
//! The list is fixed in size and lock-free; waking a thread is a futex, and only where one sleeps.
//! A thread that has just worked may look out for more for a moment before it sleeps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;

use super::own_thread::OwnThread;

/// Threads of a pool at most: one bit each says who sleeps.
pub(super) const THREADS_MAX: usize = 64;
/// Work that may wait for a pool at a time.
const LIST: usize = 1024;
/// How often a thread that does not sleep tells that it works.
const REPORT: Duration = Duration::from_millis(5);
/// Looks at the list between two looks at the clock.
const LOOKS: u32 = 64;

/// Some threads and their list. They end, after what is on the list, when the pool is dropped.
pub(super) struct WorkerPool<T> {
    common: Arc<PoolCommon<T>>,
    threads: Vec<OwnThread>,
    wake: Vec<Thread>,
}

/// Work of a pool's threads.
pub(super) trait PoolTask<T>: Send + Sync + 'static {
    /// Called once on each thread before its first work. An error is for the report only.
    fn begin(&self, _thread: usize) -> io::Result<()> {
        Ok(())
    }

    /// Does one thing.
    fn run(&self, work: T);

    /// How long a thread looks out for more before it sleeps.
    fn lookout(&self) -> Duration {
        Duration::ZERO
    }

    /// Called on each thread now and then while it works, and before it sleeps.
    fn has_worked(&self, _thread: usize) {}
}

struct PoolCommon<T> {
    todo: ArrayQueue<T>,
    /// One bit for each thread that sleeps or is about to.
    sleepers: AtomicU64,
    /// Threads that look out for work right now.
    looking: AtomicUsize,
    stop: AtomicBool,
}

impl<T: Send + 'static> WorkerPool<T> {
    /// Starts `count` threads, at most [`THREADS_MAX`]. The second value is the first error of a
    /// thread's beginning.
    pub fn start<W: PoolTask<T>>(name: &str, count: usize, work: &Arc<W>) -> io::Result<(Self, Option<io::Error>)> {
        let common = Arc::new(PoolCommon {
            todo: ArrayQueue::new(LIST),
            sleepers: AtomicU64::new(0),
            looking: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let mut pool = Self { common, threads: Vec::new(), wake: Vec::new() };
        let (say, heard) = std::sync::mpsc::channel();
        for index in 0..count.min(THREADS_MAX) {
            let (common, work, say) = (Arc::clone(&pool.common), Arc::clone(work), say.clone());
            let builder =
                std::thread::Builder::new().name(format!("{name}/{index}")).stack_size(cryptline_sys::GUARDED_STACK);
            let thread = builder.spawn(move || {
                let _guard = cryptline_sys::StackGuard::new();
                let _ = say.send(work.begin(index));
                drop(say);
                common.serve(index, &*work);
            })?;
            pool.wake.push(thread.thread().clone());
            pool.threads.push(OwnThread::new(thread));
        }
        drop(say);
        let refused = heard.iter().find_map(Result::err);
        Ok((pool, refused))
    }

    /// Puts work on the list and sees to it that a thread is awake for it. Gives it back where
    /// the list is full.
    pub fn hand_out(&self, work: T) -> Result<(), T> {
        self.common.todo.push(work)?;
        // A thread says that it sleeps and then looks at the list once more; here the order is the
        // other way round. One of the two sees the other.
        fence(Ordering::SeqCst);
        if self.common.todo.len() > self.common.looking.load(Ordering::SeqCst) {
            self.wake_one();
        }
        Ok(())
    }

    /// Tells if a thread is awake: at work, looking out for more, or on its way.
    pub fn is_awake(&self) -> bool {
        let asleep = self.common.sleepers.load(Ordering::Relaxed).count_ones();
        (asleep as usize) < self.threads.len()
    }

    /// How many threads there are.
    pub fn size(&self) -> usize {
        self.threads.len()
    }

    fn wake_one(&self) {
        loop {
            let sleepers = self.common.sleepers.load(Ordering::SeqCst);
            if sleepers == 0 {
                return;
            }
            let index = sleepers.trailing_zeros();
            let bit = 1 << index;
            if self.common.sleepers.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
                return self.wake[index as usize].unpark();
            }
        }
    }
}

impl<T> Drop for WorkerPool<T> {
    fn drop(&mut self) {
        self.common.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.unpark();
            thread.join();
        }
    }
}

impl<T> PoolCommon<T> {
    fn serve<W: PoolTask<T>>(&self, index: usize, work: &W) {
        let mut told = Instant::now();
        loop {
            while let Some(item) = self.todo.pop() {
                work.run(item);
            }
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            if self.look_out(work.lookout()) {
                if told.elapsed() >= REPORT {
                    work.has_worked(index);
                    told = Instant::now();
                }
                continue;
            }
            self.sleepers.fetch_or(1 << index, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if self.todo.is_empty() {
                work.has_worked(index);
                self.sleep(1 << index);
                told = Instant::now();
            }
            self.sleepers.fetch_and(!(1 << index), Ordering::SeqCst);
        }
    }

    /// Looks out for work. Returns `true` if some came within `time`.
    fn look_out(&self, time: Duration) -> bool {
        if time.is_zero() {
            return false;
        }
        let until = Instant::now() + time;
        self.looking.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            if (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                !self.todo.is_empty()
            }) {
                break true;
            }
            if Instant::now() >= until || self.stop.load(Ordering::Relaxed) {
                break false;
            }
        };
        self.looking.fetch_sub(1, Ordering::SeqCst);
        found
    }

    fn sleep(&self, bit: u64) {
        while self.sleepers.load(Ordering::SeqCst) & bit != 0 && !self.stop.load(Ordering::SeqCst) {
            std::thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(AtomicU64, Duration);

    impl PoolTask<u64> for Count {
        fn run(&self, work: u64) {
            self.0.fetch_add(work, Ordering::SeqCst);
        }

        fn lookout(&self) -> Duration {
            self.1
        }
    }

    #[test]
    fn everything_handed_out_is_done_before_the_pool_ends() {
        for lookout in [Duration::ZERO, Duration::from_micros(50)] {
            let count = Arc::new(Count(AtomicU64::new(0), lookout));
            let (pool, refused) = WorkerPool::start("test", 3, &count).unwrap();
            assert!(refused.is_none());
            let mut sum = 0;
            for round in 0..20_000u64 {
                if pool.hand_out(round).is_ok() {
                    sum += round;
                }
                if round % 512 == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            drop(pool);
            assert_eq!(count.0.load(Ordering::SeqCst), sum);
        }
    }

    #[test]
    fn sleeping_thread_is_woken_by_each_single_piece_of_work() {
        let count = Arc::new(Count(AtomicU64::new(0), Duration::ZERO));
        let (pool, _) = WorkerPool::start("test", 1, &count).unwrap();
        for round in 1..=500 {
            pool.hand_out(1).unwrap();
            while count.0.load(Ordering::SeqCst) < round {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn full_list_gives_the_work_back() {
        struct Stuck(std::sync::Mutex<()>);
        impl PoolTask<usize> for Stuck {
            fn run(&self, _: usize) {
                drop(self.0.lock());
            }
        }
        let stuck = Arc::new(Stuck(std::sync::Mutex::new(())));
        let held = stuck.0.lock().unwrap();
        let (pool, _) = WorkerPool::start("test", 1, &stuck).unwrap();
        let refused = (0..LIST + 2).find_map(|index| pool.hand_out(index).err());
        assert!(refused.is_some_and(|index| index >= LIST));
        drop(held);
    }
}
