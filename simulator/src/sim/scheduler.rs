//! The turns that threads take, and the clock.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::time::Duration;

use super::context::{Context, Start, Work};
use super::{memory, sockets};

/// Outside of a simulation.
const OUTSIDE: usize = usize::MAX;
/// Nanoseconds that a change of turns takes.
const STEP: u64 = 1_000;
/// Nanoseconds that asking for the time takes.
const ASKING: u64 = 200;
/// Looks at the clock without a change of turns, after which there is one: a thread that spins lets others run.
const SPINS: u32 = 64;
/// Time on the clock when a history begins: long after zero, since code may subtract.
const BEGIN: u64 = 1_000_000_000_000;

thread_local! {
    static ME: Cell<usize> = const { Cell::new(OUTSIDE) };
    static BYPASS: Cell<u32> = const { Cell::new(0) };
    /// The thread that simulates.
    static FIRST: &'static Context = Context::own();
}

/// Things that a thread waits for; the first to come ends the wait.
#[derive(Clone, Debug, Default)]
pub struct Wait {
    /// Moment on the clock, in nanoseconds.
    pub until: Option<u64>,
    /// Descriptors with their events, as poll(2) takes them.
    pub fds: Vec<(i32, i16)>,
    /// Address of a futex, or a number of [`hold`](super::hold).
    pub key: Option<usize>,
    /// End of a thread.
    pub thread: Option<usize>,
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Its moment has come.
    Late,
    /// Something that it waited for has come.
    Ready,
}

#[derive(Debug)]
enum State {
    Ready(Woken),
    Waits(Wait),
    Ended,
}

struct Thread {
    context: &'static Context,
    state: State,
    name: String,
    /// Turns that it has had.
    turns: u64,
    /// Chances to give the turn away.
    chances: u64,
    spins: u32,
    /// The beginning of what its chances are mixed of.
    dice: u64,
}

/// The part of a thread that is looked at when the turn changes, in a few bytes beside those of others.
struct Mark {
    /// Moment from which on it can be chosen: 0 where it is ready, [`NEVER`] where nothing but an event ends its wait.
    when: u64,
    /// The key that it waits for, or 0.
    key: usize,
    /// Precedence among those that are ready.
    rank: u64,
    /// Set if it waits for descriptors.
    polls: bool,
}

const NEVER: u64 = u64::MAX;

struct Simulation {
    seed: u64,
    now: u64,
    threads: Vec<Thread>,
    /// By thread.
    marks: Vec<Mark>,
    /// Numbers of those that have not ended.
    living: Vec<usize>,
    /// Of everything that was decided and noted.
    hash: u64,
    switches: u64,
    /// How long a thread keeps its rank: 2^this turns.
    constancy: u32,
    /// One chance in so many gives the turn away, which is a power of two.
    rest: u64,
    /// A descriptor may have become ready since all were looked at.
    is_stirred: bool,
}

struct Global(UnsafeCell<Option<Simulation>>);

// SAFETY: only the thread that has the turn looks inside, which is the system's only one that does not sleep for good.
unsafe impl Sync for Global {}

static GLOBAL: Global = Global(UnsafeCell::new(None));

fn with<T>(action: impl FnOnce(&mut Simulation) -> T) -> T {
    // SAFETY: the caller has the turn, so nobody else looks inside; no action calls back in here.
    let simulation = unsafe { &mut *GLOBAL.0.get() };
    action(simulation.as_mut().expect("a simulation runs"))
}

/// Numbers mixed to one.
#[must_use]
pub fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |sum, part| mix_in(sum, *part))
}

/// [`mix`] of one number more.
fn mix_in(sum: u64, part: u64) -> u64 {
    let mut word = (sum ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 32)
}

/// Tells if the calling thread takes turns.
#[must_use]
pub fn is_managed() -> bool {
    ME.get() != OUTSIDE && BYPASS.get() == 0
}

/// Lets the calling thread use the real system, in which it must not wait for other threads.
pub fn bypass<T>(action: impl FnOnce() -> T) -> T {
    BYPASS.set(BYPASS.get() + 1);
    let result = action();
    BYPASS.set(BYPASS.get() - 1);
    result
}

/// The time, in nanoseconds, which does not pass by asking here.
#[must_use]
pub fn now() -> u64 {
    with(|it| it.now)
}

/// The time for code under test.
pub(super) fn ask_time() -> u64 {
    let spins = with(|it| {
        it.now += ASKING;
        it.threads[ME.get()].spins += 1;
        it.threads[ME.get()].spins >= SPINS
    });
    if spins {
        give_way()
    } else {
        chance()
    }
    now()
}

/// Takes something into the hash of the history.
pub fn note(what: u64) {
    with(|it| it.hash = mix(&[it.hash, what]));
}

/// A descriptor may be ready from here on.
pub(super) fn stir() {
    with(|it| it.is_stirred = true);
}

/// A place at which another thread may go first.
pub(super) fn chance() {
    let gives_way = with(|it| {
        let thread = &mut it.threads[ME.get()];
        thread.chances += 1;
        mix_in(thread.dice, thread.chances) & (it.rest - 1) == 0
    });
    if gives_way {
        give_way();
    }
}

/// Numbers that are as good as random, and others each time.
pub(super) fn fill(bytes: &mut [u8]) {
    for part in bytes.chunks_mut(8) {
        let word = with(|it| {
            let me = ME.get();
            it.threads[me].chances += 1;
            mix(&[it.seed, 5, me as u64, it.threads[me].chances])
        });
        part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
    }
}

pub(super) fn give_way() {
    let me = ME.get();
    with(|it| it.set(me, State::Ready(Woken::Ready)));
    change_turns(me);
}

/// Waits.
pub(super) fn block(wait: Wait) -> Woken {
    let me = ME.get();
    with(|it| it.set(me, State::Waits(wait)));
    change_turns(me)
}

/// Waits for a key, for at most `limit`.
pub fn wait_for(key: Option<usize>, limit: Option<Duration>) -> Woken {
    let until = limit.map(|limit| now().saturating_add(nanos(limit)));
    block(Wait { until, key, ..Wait::default() })
}

/// Wakes those who wait for a key, `most` at most. How many.
pub fn kick(key: usize, most: usize) -> usize {
    with(|it| {
        let mut woken = 0;
        for place in 0..it.living.len() {
            let number = it.living[place];
            if woken < most && it.marks[number].key == key {
                it.set(number, State::Ready(Woken::Ready));
                woken += 1;
            }
        }
        woken
    })
}

/// The number of the calling thread, for [`rouse`].
#[must_use]
pub fn me() -> usize {
    ME.get()
}

/// Ends the wait of a thread as if its moment had come.
pub fn rouse(thread: usize) {
    with(|it| {
        if let State::Waits(_) = it.threads[thread].state {
            it.set(thread, State::Ready(Woken::Late));
        }
    });
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Gives the turn to whoever is chosen, and comes back with it.
fn change_turns(me: usize) -> Woken {
    let (chosen, other) = with(Simulation::choose);
    if chosen != me {
        with(|it| it.threads[me].context).switch_to(other);
    }
    with(|it| match it.threads[me].state {
        State::Ready(woken) => woken,
        _ => unreachable!("only who is ready is chosen"),
    })
}

impl Thread {
    fn new(context: &'static Context, name: &str, dice: u64) -> Self {
        let state = State::Ready(Woken::Ready);
        Self { context, state, name: name.to_owned(), turns: 0, chances: 0, spins: 0, dice }
    }
}

impl Simulation {
    /// Takes in a thread.
    fn add(&mut self, context: &'static Context, name: &str) {
        let number = self.threads.len();
        self.threads.push(Thread::new(context, name, mix(&[self.seed, 1, number as u64])));
        self.marks.push(Mark { when: 0, key: 0, rank: mix(&[self.seed, 2, number as u64, 0]), polls: false });
        self.living.push(number);
    }

    fn set(&mut self, number: usize, state: State) {
        let mark = &mut self.marks[number];
        (mark.when, mark.key, mark.polls) = match &state {
            State::Ready(_) => (0, 0, false),
            State::Waits(wait) => {
                (wait.until.map_or(NEVER, |at| at.max(1)), wait.key.unwrap_or(0), !wait.fds.is_empty())
            }
            State::Ended => (NEVER, 0, false),
        };
        self.threads[number].state = state;
    }

    fn choose(&mut self) -> (usize, &'static Context) {
        loop {
            self.now += STEP;
            self.look_at_descriptors();
            let (mut chosen, mut first): (Option<(u64, usize)>, Option<u64>) = (None, None);
            for place in 0..self.living.len() {
                let number = self.living[place];
                let Mark { when, rank, .. } = self.marks[number];
                if when <= self.now {
                    if when > 0 {
                        self.set(number, State::Ready(Woken::Late));
                    }
                    chosen = chosen.max(Some((rank, number)));
                } else if when != NEVER {
                    first = Some(first.map_or(when, |first| first.min(when)));
                }
            }
            if let Some((_, chosen)) = chosen {
                self.switches += 1;
                self.hash = mix(&[self.hash, chosen as u64, self.now]);
                let thread = &mut self.threads[chosen];
                thread.turns += 1;
                thread.spins = 0;
                if thread.turns.trailing_zeros() >= self.constancy {
                    self.marks[chosen].rank = mix(&[self.seed, 2, chosen as u64, thread.turns >> self.constancy]);
                }
                return (chosen, thread.context);
            }
            match first {
                Some(moment) => self.now = self.now.max(moment),
                None => super::super::die(&format!("A8: everybody waits for ever\n{}", self.describe())),
            }
        }
    }

    /// Only what this process does can make a descriptor ready, so there is nothing to look for unless it did something.
    fn look_at_descriptors(&mut self) {
        if !std::mem::take(&mut self.is_stirred) {
            return;
        }
        for place in 0..self.living.len() {
            let number = self.living[place];
            if self.marks[number].polls
                && let State::Waits(wait) = &self.threads[number].state
                && wait.fds.iter().any(|&(fd, events)| sockets::ready(fd, events) != 0)
            {
                self.set(number, State::Ready(Woken::Ready));
            }
        }
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for (number, thread) in self.threads.iter().enumerate() {
            if !matches!(thread.state, State::Ended) {
                let _ = writeln!(text, "  {} (thread {number}): {:?}", thread.name, thread.state);
            }
        }
        text
    }
}

/// How a simulation has ended.
pub struct Ended {
    /// Hash of all that happened.
    pub hash: u64,
    /// Threads that wait for something that does not come, where there are any. The process is of no more use then.
    pub left: Option<String>,
    /// Changes of turns.
    pub switches: u64,
    /// Time that has passed on the clock.
    pub lasted: Duration,
}

/// Runs `action` as the first thread of a simulation, then waits for all others.
pub fn simulate<T>(seed: u64, patience: Duration, action: impl FnOnce() -> T) -> (T, Ended) {
    let mut simulation = Simulation {
        seed,
        now: BEGIN,
        threads: Vec::new(),
        marks: Vec::new(),
        living: Vec::new(),
        hash: seed,
        switches: 0,
        constancy: [0, 0, 2, 5][(mix(&[seed, 3]) % 4) as usize],
        rest: [2, 8, 64, 1024][(mix(&[seed, 4]) % 4) as usize],
        is_stirred: true,
    };
    simulation.add(FIRST.with(|it| *it), "main");
    // SAFETY: no simulation runs, so nobody else looks inside.
    unsafe { *GLOBAL.0.get() = Some(simulation) };
    ME.set(0);
    sockets::activate();
    memory::begin(seed);
    let result = action();
    let until = now() + nanos(patience);
    let is_over = || with(|it| it.living.len() == 1);
    while !is_over() && now() < until {
        let next = with(|it| it.living.get(1).copied());
        block(Wait { until: Some(until), thread: next, ..Wait::default() });
    }
    let left = (!is_over()).then(|| with(|it| it.describe()));
    let ended =
        with(|it| Ended { hash: it.hash, left, switches: it.switches, lasted: Duration::from_nanos(it.now - BEGIN) });
    ME.set(OUTSIDE);
    // SAFETY: the other threads have ended, or wait for a turn that nobody gives them any more.
    unsafe { *GLOBAL.0.get() = None };
    (result, ended)
}

/// Takes in a new thread, which begins when it gets its turn; its number, or the system's for why there is none.
pub(super) fn admit(start: Start, argument: *mut c_void) -> Result<usize, c_int> {
    let number = with(|it| it.threads.len());
    let context = Context::with(Work { number, start, argument })?;
    with(|it| it.add(context, ""));
    Ok(number)
}

/// Names the calling thread.
pub(super) fn call(name: String) {
    with(|it| it.threads[ME.get()].name = name);
}

/// A line for each thread: what it waits for.
#[must_use]
pub fn describe() -> String {
    with(|it| it.describe())
}

/// The first thing that a thread does.
pub(super) fn begin(number: usize) {
    ME.set(number);
}

/// The last thing that a thread does; who goes on once its thread-locals are gone, which is outside of the simulation.
pub(super) fn end() -> &'static Context {
    let me = ME.replace(OUTSIDE);
    with(|it| {
        it.set(me, State::Ended);
        it.living.retain(|number| *number != me);
        for place in 0..it.living.len() {
            let number = it.living[place];
            if matches!(&it.threads[number].state, State::Waits(wait) if wait.thread == Some(me)) {
                it.set(number, State::Ready(Woken::Ready));
            }
        }
        it.choose().1
    })
}

/// Waits for the end of a thread.
pub(super) fn join(number: usize) {
    while with(|it| !matches!(it.threads[number].state, State::Ended)) {
        block(Wait { thread: Some(number), ..Wait::default() });
    }
}
