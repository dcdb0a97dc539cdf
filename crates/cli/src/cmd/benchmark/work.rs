//! The speed of some work: steps of about a millisecond on one thread or several, and the median of the steps.

use std::sync::{PoisonError, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cryptline_cipher::ceiling::{median, spread};
use cryptline_engine::Buffer;
use rustix::time::{ClockId, clock_gettime};

use crate::CliError;

/// Shortest measurement: a few steps.
const TIME_MIN: Duration = Duration::from_millis(8);
/// Work is done in steps that take about as long, so that what a call costs does not count. One is shorter than a time
/// slice of the scheduler, so most are either undisturbed or lost.
const STEP: Duration = Duration::from_millis(1);

/// Result of a measurement.
#[derive(Debug)]
pub struct Speed {
    /// Units in a second, all threads together.
    pub rate: f64,
    /// The largest of the threads.
    pub spread: f64,
    pub samples: usize,
    /// Share of the time that the threads had a processor.
    pub busy: f64,
}

/// A thread's steps, each as units in a second, its processor time and its whole time.
struct ThreadCounts {
    steps: Vec<f64>,
    cpu: Duration,
    wall: Duration,
}

/// Measures for about `time` on `threads` threads at once. `make` is called once on each thread and gives the work, which
/// is told how many units to do.
pub fn rate<W>(threads: usize, time: Duration, make: impl Fn() -> Result<W, CliError> + Sync) -> Result<Speed, CliError>
where
    W: FnMut(u32),
{
    let units = units(&mut make()?);
    let time = time.max(TIME_MIN);
    // True once all are to begin together; false until then, and where some could not be started.
    let begin = RwLock::new(false);
    let (say, ready) = mpsc::channel();
    let thread = |say: mpsc::Sender<()>| {
        let work = make();
        // A thread that cannot work says so, too.
        drop(say);
        let may_begin = begin.read().is_ok_and(|begin| *begin);
        let mut work = work?;
        Ok(may_begin.then(|| count(&mut work, units, time)))
    };
    let counted: Vec<ThreadCounts> = if threads == 1 {
        // On this thread: what its last work left in the caches is still there.
        vec![count(&mut make()?, units, time)]
    } else {
        thread::scope(|scope| {
            let mut hold = begin.write().unwrap_or_else(PoisonError::into_inner);
            let thread = &thread;
            let start = |_| {
                let say = say.clone();
                thread::Builder::new().spawn_scoped(scope, move || thread(say)).map_err(CliError::no_thread)
            };
            let started = (0..threads).map(start).collect::<Result<Vec<_>, _>>()?;
            drop(say);
            // Over when none is left that has not dropped its end.
            let _ = ready.recv();
            *hold = true;
            drop(hold);
            let ended =
                started.into_iter().map(|thread| thread.join().unwrap_or_else(|it| std::panic::resume_unwind(it)));
            let ended = ended.collect::<Result<Vec<_>, CliError>>()?;
            Ok::<_, CliError>(ended.into_iter().flatten().collect())
        })?
    };
    let cpu: Duration = counted.iter().map(|one| one.cpu).sum();
    let wall: Duration = counted.iter().map(|one| one.wall).sum();
    Ok(Speed {
        rate: counted.iter().map(|one| median(&one.steps).unwrap_or(0.0)).sum(),
        spread: counted.iter().map(|one| spread(&one.steps)).fold(0.0, f64::max),
        samples: counted.iter().map(|one| one.steps.len()).sum(),
        busy: cpu.as_secs_f64() / wall.as_secs_f64().max(1e-9),
    })
}

/// Warms up for a quarter of the time, and counts in the rest: one step at least.
fn count(work: &mut impl FnMut(u32), units: u32, time: Duration) -> ThreadCounts {
    let (start, cpu) = (Instant::now(), thread_cpu_time());
    let mut steps = Vec::new();
    let mut now = start;
    while steps.is_empty() || now - start < time {
        work(units);
        let begun = std::mem::replace(&mut now, Instant::now());
        if now - start >= time / 4 {
            steps.push(f64::from(units) / (now - begun).as_secs_f64().max(1e-9));
        }
    }
    ThreadCounts { steps, cpu: thread_cpu_time().saturating_sub(cpu), wall: start.elapsed() }
}

/// Units of work that take about as long as a step.
fn units(work: &mut impl FnMut(u32)) -> u32 {
    const UNITS_MAX: u32 = 1 << 20;
    let mut units = 1;
    loop {
        let start = Instant::now();
        work(units);
        let elapsed = start.elapsed();
        if elapsed >= STEP / 2 || units >= UNITS_MAX {
            let scaled = u128::from(units) * STEP.as_nanos() / elapsed.as_nanos().max(1);
            return u32::try_from(scaled).unwrap_or(UNITS_MAX).clamp(1, UNITS_MAX);
        }
        units *= 2;
    }
}

fn thread_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// A buffer that has been touched and holds no run of zeros.
pub fn buffer(len: u32) -> Result<Buffer, CliError> {
    let mut buffer = Buffer::alloc(usize::try_from(len).unwrap_or(usize::MAX))
        .map_err(|error| CliError::memory(format!("no memory to measure with: {error}")))?;
    buffer.fill(0x5a);
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn every_thread_works_and_the_work_is_counted() {
        let (made, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let measured = rate(2, Duration::from_millis(12), || {
            made.fetch_add(1, Ordering::Relaxed);
            Ok(|units| {
                thread::sleep(Duration::from_micros(10) * units);
                done.fetch_add(u64::from(units), Ordering::Relaxed);
            })
        });
        let measured = measured.expect("it does not fail");
        // The work that the units are found by, and that of each thread.
        assert_eq!(made.load(Ordering::Relaxed), 3);
        assert!(done.load(Ordering::Relaxed) >= 3);
        assert!(measured.rate > 0.0 && measured.spread >= 0.0 && measured.samples >= 2);
        // Sleeping takes no processor time.
        assert!(measured.busy < 1.0);
    }

    #[test]
    fn a_step_of_work_that_is_longer_than_a_step_is_one_unit() {
        let mut work = |units| thread::sleep(Duration::from_millis(2) * units);
        assert_eq!(units(&mut work), 1);
    }
}
