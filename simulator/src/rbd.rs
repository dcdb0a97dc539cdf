//! A Ceph cluster below: an image whose library ends requests late, in any order and on threads of its own, and which others
//! shut out, lock, or make larger and smaller.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::cells::SECTOR;
use crate::sim;
use crate::sim::ceph::{Image, Request, Watch, Wish, put_image};

/// Those who wait for requests, or for the cluster to speak again.
const KEY: usize = 4;
const SILENT_KEY: usize = 5;
/// Threads of the library.
const THREADS: u64 = 2;
/// Bytes behind those that are used, which the image may lose and get.
const EXTRA: usize = 8 * SECTOR;

/// Ways in which it goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Habits {
    /// One request in so many fails, perhaps after it was carried out. 0 for none.
    pub fails: u64,
    /// The cluster shuts its client out.
    pub shuts_out: Option<Duration>,
    /// The image is made larger by others.
    pub grows: Option<Duration>,
    /// The image is made smaller by others.
    pub shrinks: Option<Duration>,
}

impl Habits {
    /// Tells if requests may fail.
    pub fn can_fail(self) -> bool {
        self.fails > 0 || self.shuts_out.is_some() || self.shrinks.is_some()
    }
}

/// The cluster.
pub struct Cluster {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    habits: Habits,
    seed: u64,
    /// Bytes that are used.
    used: usize,
}

struct State {
    /// Content before anything was written.
    first: Vec<u8>,
    data: Vec<u8>,
    /// Changes in the order in which they took effect.
    changes: Vec<Change>,
    pending: Vec<Pending>,
    count: u64,
    size: usize,
    is_silent: bool,
    is_ending: bool,
    is_shut_out: bool,
    /// The largest size that was told since it was opened.
    told_size: usize,
    opened: usize,
    watch: Option<Watch>,
    /// Things that must not happen.
    findings: Vec<String>,
}

/// A change of a range.
struct Change {
    number: u64,
    at: usize,
    bytes: Vec<u8>,
    /// Whoever wanted it was told of its end.
    is_told: bool,
    is_durable: bool,
}

/// A request that the library has.
struct Pending {
    request: Request,
    number: u64,
    /// When it takes effect and when it is told.
    effect: u64,
    report: u64,
    result: Option<isize>,
    /// Of a flush: changes that were told before it came.
    covers: Vec<u64>,
    fails: bool,
}

impl Cluster {
    /// A cluster with an image that begins with `data`.
    pub fn start(mut data: Vec<u8>, habits: Habits, seed: u64) -> std::io::Result<Self> {
        let used = data.len();
        data.resize(used + EXTRA, 0);
        let state = State {
            first: data.clone(),
            size: data.len(),
            data,
            changes: Vec::new(),
            pending: Vec::new(),
            count: 0,
            is_silent: false,
            is_ending: false,
            is_shut_out: false,
            told_size: 0,
            opened: 0,
            watch: None,
            findings: Vec::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), habits, seed, used });
        let image: Arc<dyn Image> = Arc::<Shared>::clone(&shared);
        put_image(Some(image));
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let shared = Arc::clone(&shared);
            let named = std::thread::Builder::new().name("librbd".to_owned());
            threads.push(named.spawn(move || shared.serve())?);
        }
        let others = Arc::clone(&shared);
        let named = std::thread::Builder::new().name("others".to_owned());
        threads.push(named.spawn(move || others.others())?);
        Ok(Self { shared, threads })
    }

    /// Answers nothing from here on.
    pub fn silence(&self) {
        self.shared.state().is_silent = true;
    }

    /// Answers again.
    pub fn speak(&self) {
        self.shared.state().is_silent = false;
        sim::kick(SILENT_KEY, usize::MAX);
        sim::kick(KEY, usize::MAX);
    }

    /// Tells if what was written may be lost: part of the image is.
    pub fn lost(&self) -> impl Fn() -> bool + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || {
            let state = shared.state();
            state.size < state.told_size
        }
    }

    /// Ends, once all requests have ended. Bytes that are used: as they are, and as they would be had the cluster kept no
    /// more than it had to; and what was done that must not be.
    pub fn end(self) -> (Vec<u8>, Vec<u8>, Vec<String>) {
        self.speak();
        self.shared.state().is_ending = true;
        sim::kick(KEY, usize::MAX);
        for thread in self.threads {
            let _ = thread.join();
        }
        let mut state = self.shared.state();
        let used = self.shared.used;
        let mut least = std::mem::take(&mut state.first);
        for change in &state.changes {
            if change.is_durable {
                least[change.at..change.at + change.bytes.len()].copy_from_slice(&change.bytes);
            }
        }
        least.truncate(used);
        let mut data = std::mem::take(&mut state.data);
        data.truncate(used);
        (data, least, std::mem::take(&mut state.findings))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chance(&self, kind: u64, number: u64) -> u64 {
        sim::mix(&[self.seed, kind, number])
    }

    /// A thread of the library: it carries out requests, and calls back.
    fn serve(&self) {
        loop {
            let (due, wait) = {
                let mut state = self.state();
                if state.is_ending && state.pending.is_empty() {
                    return;
                }
                state.next()
            };
            match due {
                Some(Pending { request, result, .. }) => request.end(result.unwrap_or(0)),
                None => _ = sim::wait_for(Some(KEY), wait.map(Duration::from_nanos)),
            }
        }
    }

    /// Others change the image, or what its client may do.
    fn others(&self) {
        let Habits { shuts_out, grows, shrinks, fails: _ } = self.habits;
        let mut events = [(shuts_out, 0), (grows, 1), (shrinks, 2)];
        events.sort_by_key(|(at, _)| *at);
        let began = sim::now();
        for (at, event) in events {
            let Some(at) = at else { continue };
            let until = began + u64::try_from(at.as_nanos()).expect("seconds");
            sim::wait_for(None, Some(Duration::from_nanos(until.saturating_sub(sim::now()))));
            let mut state = self.state();
            if state.is_ending {
                return;
            }
            match event {
                0 => state.is_shut_out = true,
                1 => state.size += EXTRA,
                _ => state.size = self.used,
            }
            drop(state);
            // The news comes a moment later.
            sim::wait_for(None, Some(Duration::from_micros(50 + self.chance(30, event) % 5_000)));
            let state = self.state();
            if event > 0
                && let Some(watch) = &state.watch
            {
                watch.tell();
            }
        }
    }

    /// Waits as long as asking the cluster takes.
    fn ask(&self) {
        let number = {
            let mut state = self.state();
            state.count += 1;
            state.count
        };
        sim::wait_for(None, Some(Duration::from_nanos(5_000 + self.chance(31, number) % 200_000)));
        while self.state().is_silent {
            sim::wait_for(Some(SILENT_KEY), None);
        }
    }
}

impl State {
    /// Carries out what is due. A request that has ended, or how long nothing is due.
    fn next(&mut self) -> (Option<Pending>, Option<u64>) {
        if self.is_silent {
            return (None, None);
        }
        let now = sim::now();
        loop {
            let moment = |pending: &Pending| if pending.result.is_none() { pending.effect } else { pending.report };
            let first = self.pending.iter().enumerate().min_by_key(|(_, pending)| (moment(pending), pending.number));
            let Some((index, first)) = first else { return (None, None) };
            if moment(first) > now {
                return (None, Some(moment(first) - now));
            }
            if first.result.is_none() {
                let mut pending = self.pending.swap_remove(index);
                pending.result = Some(self.carry_out(&mut pending));
                self.pending.push(pending);
                continue;
            }
            let pending = self.pending.swap_remove(index);
            if pending.result.is_some_and(|result| result >= 0) {
                self.told(&pending);
            }
            return (Some(pending), None);
        }
    }

    /// Whoever wanted it is about to be told that it has been done.
    fn told(&mut self, pending: &Pending) {
        let is_durable = matches!(pending.request.wish, Wish::Write { durable: true });
        for change in self.changes.iter_mut().filter(|change| change.number == pending.number) {
            change.is_told = true;
            change.is_durable |= is_durable;
        }
    }

    fn carry_out(&mut self, pending: &mut Pending) -> isize {
        let Pending { request, number, fails, covers, .. } = pending;
        if self.is_shut_out {
            return -isize::try_from(libc::ESHUTDOWN).expect("small");
        }
        let at = usize::try_from(request.offset).unwrap_or(usize::MAX);
        // What lies behind the end is left out, and nothing is said of that.
        let len = request.len.min(self.size.saturating_sub(at));
        let change = match request.wish {
            Wish::Write { .. } => Some(request.bytes()[..len].to_vec()),
            Wish::Zero => Some(vec![0; len]),
            Wish::Read | Wish::Flush => None,
        };
        if let Some(bytes) = change {
            // One that fails has been carried out, or not.
            if *fails && number.is_multiple_of(2) {
                return -isize::try_from(libc::EIO).expect("small");
            }
            if self.data.len() < at + len {
                self.data.resize(at + len, 0);
                self.first.resize(at + len, 0);
            }
            self.data[at..at + len].copy_from_slice(&bytes);
            self.changes.push(Change { number: *number, at, bytes, is_told: false, is_durable: false });
        }
        if *fails {
            return -isize::try_from(libc::EIO).expect("small");
        }
        match request.wish {
            Wish::Read => {
                request.fill(&self.data[at..at + len]);
                isize::try_from(len).expect("small")
            }
            Wish::Flush => {
                for change in self.changes.iter_mut().filter(|change| covers.contains(&change.number)) {
                    change.is_durable = true;
                }
                0
            }
            _ => 0,
        }
    }
}

impl Image for Shared {
    fn open(&self, writes: bool) -> Result<(), i32> {
        self.ask();
        let mut state = self.state();
        if state.is_shut_out {
            return Err(libc::ESHUTDOWN);
        }
        if writes && state.opened > 0 {
            // Another handle of this process has its lock, and is about to be closed.
            return Err(libc::EBUSY);
        }
        state.opened += 1;
        if writes {
            state.told_size = 0;
        }
        Ok(())
    }

    fn close(&self) {
        let mut state = self.state();
        state.opened = state.opened.saturating_sub(1);
        if !state.pending.is_empty() {
            let count = state.pending.len();
            state.findings.push(format!("A10: an image is closed with {count} requests under way"));
        }
        if state.watch.is_some() {
            state.findings.push("A10: an image is closed that is still watched".to_owned());
        }
    }

    fn lock(&self) -> Result<(), i32> {
        self.ask();
        Ok(())
    }

    fn size(&self) -> Result<u64, i32> {
        // It is known unless it has changed.
        let has_changed = {
            let state = self.state();
            state.told_size != state.size
        };
        if has_changed {
            self.ask();
        }
        let mut state = self.state();
        if state.is_shut_out {
            return Err(libc::ESHUTDOWN);
        }
        state.told_size = state.told_size.max(state.size);
        Ok(state.size as u64)
    }

    fn watch(&self, watch: Option<Watch>) {
        self.state().watch = watch;
    }

    fn take(&self, request: Request) -> Result<(), (Request, i32)> {
        let mut state = self.state();
        if state.is_ending {
            return Err((request, libc::ESHUTDOWN));
        }
        state.count += 1;
        let number = state.count;
        let word = self.chance(32, number);
        let range = [20_000, 100_000, 400_000, 4_000_000];
        let time = |word: u64| 1_000 + (word >> 8) % range[(word % 4) as usize];
        let effect = sim::now() + time(word);
        let covers = state.changes.iter().filter(|change| change.is_told).map(|change| change.number).collect();
        let fails = self.habits.fails > 0 && self.chance(33, number).is_multiple_of(self.habits.fails);
        let report = effect + time(self.chance(34, number));
        let covers = if request.wish == Wish::Flush { covers } else { Vec::new() };
        state.pending.push(Pending { request, number, effect, report, result: None, covers, fails });
        drop(state);
        sim::kick(KEY, 1);
        Ok(())
    }
}
