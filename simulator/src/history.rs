//! The events of one history, drawn from a seed: every part from a number of its own, so that one can be left out and the
//! others stay as they are.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::below::Habits;
use crate::control::{self, Controller};
use crate::copy::Plan;
use crate::rbd;
use crate::sim::mix;
use crate::stack::Stack;

/// Sectors of an export that are used.
pub const SECTORS: usize = 40;
/// Sectors by which a file below grows.
pub const MORE: usize = 8;
/// Exports.
pub const EXPORTS: usize = 2;

/// One history in so many has a mount.
const MOUNTS: u64 = 3;
/// One history in so many of those with a machine at export 0 has a busy one, over a medium that answers at once.
const BUSY_ONE_IN: u64 = 50;
/// One history in so many is a copy.
const COPIES: u64 = 40;

/// The end of a history that waits for all control clients, at the latest.
const PATIENCE: Duration = Duration::from_secs(75);

/// A history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct History {
    /// Source of all that is left to chance within.
    pub seed: u64,
    /// Layers of export 0.
    pub stack: Stack,
    /// The front of each export.
    #[serde(default)]
    pub doors: [Door; EXPORTS],
    pub clients: Vec<Client>,
    pub faults: Faults,
    /// The mount is cut off then, whoever uses it.
    #[serde(default)]
    pub cut_off: Option<Duration>,
    /// The file below export 0 grows then, where its stack grows with it.
    #[serde(default)]
    pub growth: Option<Duration>,
    /// Orders of whoever runs the server, and when.
    #[serde(default)]
    pub orders: Vec<(Duration, Order)>,
    /// Clients of the control socket besides.
    #[serde(default)]
    pub controllers: Vec<Controller>,
    /// Lasts until those have gone.
    #[serde(default)]
    pub is_patient: bool,
    /// Doings of the kernel and another program, and when.
    #[serde(default)]
    pub nature: Vec<(Duration, Nature)>,
    /// The power fails then, as far as the file is concerned: what it would leave is looked at in the end.
    pub cut: Duration,
    /// A mistake that is built in.
    pub careless: Option<Careless>,
    /// The server is stopped then, at the latest.
    pub stop: Duration,
    /// Export 1 is an image of a cluster, with these habits, and not on an NBD server.
    #[serde(default)]
    pub rbd: Option<rbd::Habits>,
    /// Nothing of all that happens, but a copy.
    #[serde(default)]
    pub copy: Option<Plan>,
}

/// A front: the door through which clients reach an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Door {
    #[default]
    Nbd,
    /// A file of a mount, which has all that are behind this door.
    Mount,
    /// The disk of a virtual machine, or of several.
    VhostUser,
}

/// Faults that happen. A few kinds in each history, none in some.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// Writes of the file are lost on their way from the cache to the medium, or its medium fails: one sync in so many.
    pub loses: u32,
    /// The file system refuses to punch holes and to zero, one time in so many.
    pub refuses: u32,
    /// Syncs of the file are refused, one in so many.
    pub unsynced: u32,
    /// Transfers come back short, one in so many.
    pub short: u32,
    /// Operations are interrupted before they do anything, one in so many; a sync that says so may have used a report up.
    pub interrupts: u32,
    /// The medium of an export falls silent, and when; and when it speaks again, unless it never does.
    pub silence: Option<(usize, Duration, Option<Duration>)>,
    /// Those of the NBD server below.
    pub below: Habits,
}

/// A mistake of the simulated system, such as the code could make: whoever looks for such must find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Careless {
    /// A sync says yes and does nothing.
    SyncsNothing,
    /// A durable write is a plain one.
    ForgetsDurable,
    /// A write of the file does not arrive, now and then.
    LosesWrites,
    /// A transfer takes two seconds, now and then.
    IsSlow,
    /// A transfer fails, now and then.
    Fails,
}

impl Careless {
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::SyncsNothing, "A4"),
        (Self::ForgetsDurable, "A4"),
        (Self::LosesWrites, "A1"),
        (Self::IsSlow, "A7"),
        (Self::Fails, "A9"),
    ];
}

/// An order for an export while others are served.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Order {
    Flush(usize),
    /// With `now`, its clients are made to leave.
    Remove {
        export: usize,
        now: bool,
    },
    /// One that was removed comes again, opened anew.
    Add(usize),
}

/// A thing that happens to the file besides.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Nature {
    /// The kernel writes dirty pages back; what fails is lost.
    WriteBack { fails: bool },
    /// The kernel drops clean pages.
    Evict,
    /// Another program, which has had the file open all the time, syncs it.
    ForeignSync,
    /// The same program reads the file through the cache.
    ForeignRead,
}

/// A client of an export.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Client {
    pub export: usize,
    /// A crowd sends many requests, and only then waits for answers.
    #[serde(default)]
    pub is_crowd: bool,
    pub steps: Vec<Step>,
}

/// Sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub first: usize,
    pub count: usize,
}

/// One step of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    Write {
        place: Place,
        durable: bool,
    },
    Read(Place),
    Zero {
        place: Place,
        fast: bool,
        may_unmap: bool,
        durable: bool,
    },
    Discard(Place),
    Flush,
    /// Asks what of a place is zeros.
    Status(Place),
    /// Asks for what is no request.
    Odd(Odd),
    /// Asks how large the disk is.
    Size,
    /// Waits for all answers.
    Settle,
    /// Waits for them, and then for a while.
    Pause(Duration),
    /// Goes away without a word, and comes again.
    Leave,
    /// The same, in the midst of a write.
    BreakOff(Place),
    /// The same, once it has sent bytes that are no request.
    Garble,
    /// Says that it asks no more, hears all answers, and comes again.
    AskNoMore,
    /// A machine stops its queues, with whatever is under way, and starts them again.
    Halt,
    /// Its front-end goes without a word and comes again, with what is under way, where it keeps that.
    Return,
    /// Turns the write cache on or off.
    Cache(bool),
    /// Has requests ready all the time, for longer than a second.
    Busy,
}

/// A request that a server has to refuse, and that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Odd {
    /// A write that begins within a block.
    Unaligned,
    /// A write whose second half is behind the end.
    Behind,
    /// A zeroing of such a place.
    ZeroBehind,
    /// A read of a place that is around the end of all numbers.
    FarAway,
    /// A command that nobody has defined.
    Unknown,
}

impl Odd {
    const ALL: [Self; 5] = [Self::Unaligned, Self::Behind, Self::ZeroBehind, Self::FarAway, Self::Unknown];
}

/// Numbers drawn one after the other.
pub struct Draw(u64, u64);

impl Draw {
    pub fn below(&mut self, end: u64) -> u64 {
        self.1 += 1;
        mix(&[self.0, self.1]) % end
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

impl History {
    /// The history of a seed.
    pub fn of(seed: u64) -> Self {
        if Draw(mix(&[seed, 111]), 0).one_in(COPIES) {
            return Self::of_copy(seed);
        }
        let mut draw = Draw(mix(&[seed, 100]), 0);
        let clients = (0..2 + draw.below(3)).map(|number| client(&mut Draw(mix(&[seed, 101, number]), 0), number));
        let clients = clients.collect();
        let stack = Stack::of(mix(&[seed, 103]));
        let faults = faults(&mut Draw(mix(&[seed, 102]), 0), stack);
        let history = Self {
            seed,
            stack,
            doors: doors(&mut Draw(mix(&[seed, 108]), 0)),
            cut_off: None,
            growth: None,
            clients,
            faults,
            nature: nature(&mut Draw(mix(&[seed, 107]), 0), faults.loses > 0),
            orders: orders(&mut Draw(mix(&[seed, 106]), 0)),
            controllers: Vec::new(),
            is_patient: false,
            cut: Duration::from_micros(Draw(mix(&[seed, 105]), 0).below(40_000)),
            careless: None,
            stop: Duration::from_secs(8),
            rbd: cluster(&mut Draw(mix(&[seed, 113]), 0)),
            copy: None,
        };
        let mut draw = Draw(mix(&[seed, 109]), 0);
        let mut history = if draw.one_in(MOUNTS) { history.mounted(&mut draw) } else { history.with_own_steps() };
        if history.doors.contains(&Door::Nbd) {
            (history.controllers, history.is_patient) =
                control::draw(&mut Draw(mix(&[seed, 116]), 0), faults.silence.is_some());
        }
        if history.is_patient {
            history.stop = PATIENCE;
        }
        if history.stack == Stack::Wide && history.doors[0] != Door::Nbd {
            // Neither the kernel of the simulator's mounts nor its machines cut what is larger than their buffers.
            history.stack = Stack::HelpedXts;
        }
        history
    }

    /// The same, with steps that only machines have, for those clients that are some, and those that only NBD has, for others.
    fn with_own_steps(mut self) -> Self {
        if self.doors.contains(&Door::VhostUser) {
            // A machine has its disks on files and on the NBD server below.
            self.rbd = None;
        }
        let mut draw = Draw(mix(&[self.seed, 117]), 0);
        if self.doors[0] == Door::VhostUser && draw.one_in(BUSY_ONE_IN) {
            self.stack = Stack::Mapped;
            let client = self.clients.iter_mut().find(|client| client.export == 0);
            client.into_iter().for_each(|client| client.steps.insert(draw.below(4) as usize, Step::Busy));
        }
        for (number, client) in (0..).zip(&mut self.clients) {
            let mut draw = Draw(mix(&[self.seed, 110, number]), 0);
            if self.stack == Stack::DirectTwoFiles && client.export == 0 {
                zero_often(&mut draw, &mut client.steps);
            }
            match self.doors[client.export] {
                Door::VhostUser => be_a_machine(&mut draw, &mut client.steps),
                _ => be_a_client_of_nbd(&mut draw, &mut client.steps),
            }
        }
        self
    }

    fn of_copy(seed: u64) -> Self {
        Self {
            seed,
            stack: Stack::Plain,
            doors: [Door::Nbd; EXPORTS],
            cut_off: None,
            growth: None,
            clients: Vec::new(),
            faults: Faults::default(),
            orders: Vec::new(),
            controllers: Vec::new(),
            is_patient: false,
            nature: Vec::new(),
            cut: Duration::ZERO,
            careless: None,
            stop: Duration::ZERO,
            rbd: None,
            copy: Some(Plan::of(&mut Draw(mix(&[seed, 112]), 0))),
        }
    }

    /// The same, with its disks as files of a mount. Programs know no discard, and no zeroing is durable at once.
    fn mounted(mut self, draw: &mut Draw) -> Self {
        self.doors = [Door::Mount; EXPORTS];
        // A part of a sector is written as a whole one: where nobody can tell when that takes effect, its neighbours are not
        // what they were.
        self.faults.below.late = 0;
        self.orders.clear();
        self.cut_off = draw.one_in(6).then(|| Duration::from_micros(draw.below(60_000)));
        if let (Some(_), Some(habits)) = (self.cut_off, &mut self.rbd) {
            // Nobody says when a mount that was cut off has had its last flush.
            habits.shrinks = None;
        }
        self.growth = draw.one_in(3).then(|| Duration::from_micros(draw.below(20_000)));
        for client in &mut self.clients {
            client.steps.iter_mut().for_each(|step| match *step {
                Step::Discard(place) => *step = Step::Zero { place, fast: true, may_unmap: true, durable: false },
                Step::Zero { place, fast, may_unmap, .. } => {
                    *step = Step::Zero { place, fast, may_unmap, durable: false };
                }
                Step::Settle if draw.one_in(4) => *step = Step::Size,
                _ => {}
            });
        }
        if draw.one_in(3) {
            let export = draw.below(EXPORTS as u64) as usize;
            let steps = (0..draw.below(140)).map(|_| match draw.below(3) {
                0 => Step::Write { place: place(draw), durable: draw.one_in(4) },
                1 => Step::Read(place(draw)),
                _ => Step::Flush,
            });
            self.clients.push(Client { export, is_crowd: true, steps: steps.collect() });
        }
        self
    }

    /// Numbers of the exports behind a door.
    pub fn behind(&self, door: Door) -> Vec<usize> {
        (0..EXPORTS).filter(|export| self.doors[*export] == door).collect()
    }

    /// Steps and faults, for who makes it shorter.
    pub fn weight(&self) -> usize {
        let deeds = self.controllers.iter().map(|controller| match controller {
            Controller::Talker(deeds) => 1 + deeds.len(),
            _ => 1,
        });
        self.clients.iter().map(|client| 1 + client.steps.len()).chain(deeds).sum()
    }
}

fn doors(draw: &mut Draw) -> [Door; EXPORTS] {
    match draw.below(6) {
        0 => [Door::VhostUser, Door::Nbd],
        1 => [Door::Nbd, Door::VhostUser],
        2 => [Door::VhostUser; EXPORTS],
        _ => [Door::Nbd; EXPORTS],
    }
}

/// Makes fast zeroings of some writes, which are small: refused is one only where each of its parts is.
fn zero_often(draw: &mut Draw, steps: &mut [Step]) {
    for step in steps {
        if let Step::Write { place, .. } = *step
            && draw.one_in(3)
        {
            let place = Place { count: place.count.min(4), ..place };
            *step = Step::Zero { place, fast: true, may_unmap: draw.one_in(2), durable: false };
        }
    }
}

/// Puts steps between the others that only NBD has.
fn be_a_client_of_nbd(draw: &mut Draw, steps: &mut Vec<Step>) {
    for _ in 0..draw.below(6) {
        let step = match draw.below(8) {
            0..=2 => Step::Status(place(draw)),
            3 | 4 => Step::Odd(Odd::ALL[draw.below(Odd::ALL.len() as u64) as usize]),
            5 => Step::BreakOff(place(draw)),
            6 => Step::AskNoMore,
            _ => Step::Garble,
        };
        let at = draw.below(1 + steps.len() as u64) as usize;
        steps.insert(at, step);
    }
}

/// Puts steps between the others that only a machine has.
fn be_a_machine(draw: &mut Draw, steps: &mut Vec<Step>) {
    for _ in 0..draw.below(5) {
        let step = match draw.below(4) {
            0 | 1 => Step::Halt,
            2 => Step::Return,
            _ => Step::Cache(draw.one_in(2)),
        };
        steps.insert(draw.below(1 + steps.len() as u64) as usize, step);
    }
}

fn faults(draw: &mut Draw, stack: Stack) -> Faults {
    let mut faults = Faults::default();
    for _ in 0..draw.below(4) {
        match draw.below(10) {
            0 => faults.loses = 3 + draw.below(20) as u32,
            1 | 7 => faults.refuses = 1 + draw.below(4) as u32,
            8 => faults.unsynced = 3 + draw.below(20) as u32,
            2 => faults.short = 2 + draw.below(8) as u32,
            6 => faults.interrupts = 2 + draw.below(20) as u32,
            3 => {
                let begins = Duration::from_micros(draw.below(40_000));
                let ends = draw.one_in(3).then(|| begins + Duration::from_millis(draw.below(4_000)));
                faults.silence = Some((draw.below(EXPORTS as u64) as usize, begins, ends));
            }
            4 => faults.below.late = 4 + draw.below(20),
            9 => faults.below.idle = Some(Duration::from_micros(500 + draw.below(20_000))),
            _ => faults.below.drops = 6 + draw.below(30),
        }
    }
    if stack == Stack::DirectTwoFiles && draw.one_in(2) {
        // Two parts of one request fail in different ways.
        (faults.loses, faults.refuses) = (2 + draw.below(2) as u32, 2 + draw.below(2) as u32);
    }
    faults
}

/// In one history of five.
fn cluster(draw: &mut Draw) -> Option<rbd::Habits> {
    if !draw.one_in(5) {
        return None;
    }
    let mut habits = rbd::Habits::default();
    for _ in 0..draw.below(3) {
        let at = Some(Duration::from_micros(draw.below(40_000)));
        match draw.below(6) {
            0 | 1 => habits.fails = 4 + draw.below(30),
            2 => habits.shuts_out = at,
            3 | 4 => habits.grows = at,
            _ => habits.shrinks = at,
        }
    }
    // librbd says that an image has changed, and not how: that it was smaller for a moment, nobody can notice.
    if habits.shrinks.is_some() && habits.grows > habits.shrinks {
        habits.grows = None;
    }
    Some(habits)
}

fn nature(draw: &mut Draw, fails: bool) -> Vec<(Duration, Nature)> {
    let mut at = Duration::ZERO;
    let count = draw.below(8);
    let mut one = |_| {
        at += Duration::from_micros(draw.below(6_000));
        let nature = match draw.below(5) {
            0 | 1 => Nature::WriteBack { fails: fails && draw.one_in(2) },
            2 => Nature::Evict,
            3 => Nature::ForeignRead,
            _ => Nature::ForeignSync,
        };
        (at, nature)
    };
    (0..count).map(&mut one).collect()
}

/// None in half of the histories.
fn orders(draw: &mut Draw) -> Vec<(Duration, Order)> {
    let count = if draw.one_in(2) { 0 } else { 1 + draw.below(4) };
    let mut at = Duration::ZERO;
    let mut order = |_| {
        at += Duration::from_micros(draw.below(20_000));
        let export = draw.below(EXPORTS as u64) as usize;
        let order = match draw.below(5) {
            0 | 1 => Order::Flush(export),
            2 => Order::Remove { export, now: true },
            3 => Order::Remove { export, now: draw.one_in(2) },
            _ => Order::Add(export),
        };
        (at, order)
    };
    (0..count).map(&mut order).collect()
}

fn client(draw: &mut Draw, number: u64) -> Client {
    let export = if number < EXPORTS as u64 { number } else { draw.below(EXPORTS as u64) } as usize;
    let count = 8 + draw.below(30);
    let patience = 1 + draw.below(6);
    let mut steps = Vec::new();
    for _ in 0..count {
        steps.push(step(draw));
        if draw.one_in(patience) {
            steps.push(Step::Settle);
        }
    }
    Client { export, is_crowd: false, steps }
}

fn step(draw: &mut Draw) -> Step {
    let place = place(draw);
    match draw.below(20) {
        0..=7 => Step::Write { place, durable: draw.one_in(4) },
        8..=11 => Step::Read(place),
        12 | 13 => Step::Zero { place, fast: draw.one_in(2), may_unmap: draw.one_in(2), durable: draw.one_in(4) },
        14 => Step::Discard(place),
        15..=17 => Step::Flush,
        18 => Step::Pause(Duration::from_micros(draw.below(20_000))),
        _ if draw.one_in(3) => Step::Leave,
        _ => Step::Settle,
    }
}

/// Mostly within a small part, so that requests overlap. Some are whole sectors of a cipher with large ones.
fn place(draw: &mut Draw) -> Place {
    if draw.one_in(6) {
        return Place { first: 8 * draw.below(2) as usize, count: 8 };
    }
    let span = if draw.one_in(4) { SECTORS } else { 14 } as u64;
    let first = draw.below(span - 1);
    let most = if draw.one_in(3) { 24 } else { 4 };
    let count = (1 + draw.below(most)).min(span - first);
    Place { first: first as usize, count: count as usize }
}
