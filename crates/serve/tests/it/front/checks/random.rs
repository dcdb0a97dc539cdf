//! Random requests in flight together, from one to three clients, compared with a model disk.
//!
//! Requests in flight together must not conflict, or it is open who wins: each client has its own part
//! of the disk, and a request that conflicts with one before it in its round waits for the next round.

use cryptline_engine::dispatch::Dispatch;
use cryptline_testkit::model::ModelDisk;
use cryptline_testkit::suite::{Fresh, devices};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::{is_sparing, on_each_backend};
use crate::common::{pattern, stack};
use crate::front::client::{Ask, Client, Front, Server, Zeroing, at};

/// Bytes of one client's part.
const PART: u64 = 1 << 20;
/// Sequences of requests, how many where checks are to do less, and how many where they have all the time.
const CASES: u32 = 8;
const CASES_FEW: u32 = 3;
const CASES_OF_A_NIGHT: u32 = 100;
/// Bytes in the unit of offsets and lengths.
const BLOCK: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Zero,
    Discard,
    Flush,
    Cache,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    client: usize,
    /// In blocks, inside the client's part.
    start: u64,
    blocks: u64,
    durable: bool,
    seed: u64,
}

impl Step {
    fn offset(&self) -> u64 {
        self.client as u64 * PART + self.start * BLOCK
    }

    fn len(&self) -> u32 {
        u32::try_from(self.blocks * BLOCK).expect("inside a part")
    }

    fn data(&self) -> Vec<u8> {
        pattern(self.offset(), self.len() as usize, self.seed)
    }

    fn conflicts(&self, other: &Self) -> bool {
        let reads = |step: &Self| matches!(step.kind, Kind::Read | Kind::Cache | Kind::Flush);
        let apart = self.start + self.blocks <= other.start || other.start + other.blocks <= self.start;
        self.client == other.client && !apart && !(reads(self) && reads(other))
    }

    fn ask(&self) -> Ask {
        let (range, durable) = (at(self.offset(), self.len()), self.durable);
        match self.kind {
            Kind::Read => Ask::Read(range),
            Kind::Cache => Ask::Cache(range),
            Kind::Write => Ask::Write { offset: self.offset(), data: self.data(), durable },
            Kind::Zero => {
                let may_unmap = self.seed.is_multiple_of(2);
                Ask::Zero(range, Zeroing { durable, may_unmap, fast: false })
            }
            Kind::Discard => Ask::Discard { range, durable },
            Kind::Flush => Ask::Flush,
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![
        6 => Just(Kind::Read),
        6 => Just(Kind::Write),
        2 => Just(Kind::Zero),
        1 => Just(Kind::Discard),
        1 => Just(Kind::Flush),
        1 => Just(Kind::Cache),
    ];
    let blocks = PART / BLOCK;
    let len = prop_oneof![3 => 1..4_u64, 2 => 1..40_u64, 1 => 1..=blocks];
    let step = (kind, 0..3_usize, 0..blocks, len, any::<bool>(), any::<u64>());
    let step = step.prop_map(move |(kind, client, start, len, durable, seed)| Step {
        kind,
        client,
        start,
        blocks: len.min(blocks - start),
        durable: durable && seed % 4 == 0,
        seed,
    });
    prop::collection::vec(step, 1..150)
}

fn play_all(server: &dyn Server, steps: &[Step]) {
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    let mut model = ModelDisk::new(3 * PART);
    let mut left = steps;
    while !left.is_empty() {
        let conflict = |index: &usize| {
            let mut before = left[..*index].iter();
            before.any(|step| step.conflicts(&left[*index]))
        };
        let round = (0..left.len()).find(conflict).unwrap_or(left.len());
        let (now, later) = left.split_at(round);
        play(&mut clients, &mut model, now);
        left = later;
    }
    for (index, client) in (0..).zip(&mut clients) {
        let offset = index * PART;
        let read = client.read(offset, u32::try_from(PART).expect("small"));
        model.check(offset, &read).expect("the last state");
    }
}

/// Sends all of one round at once, and checks all answers.
fn play(clients: &mut [Box<dyn Client>], model: &mut ModelDisk, round: &[Step]) {
    let sent: Vec<(u64, &Step)> =
        (round.iter()).map(|step| (clients[step.client].send(&[step.ask()])[0], step)).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        let own = sent.iter().filter(|(_, step)| step.client == index);
        let mut answers = client.answers(own.clone().count());
        for (mark, step) in own {
            let data = answers.remove(mark).expect("one each").expect("success");
            if step.kind == Kind::Read {
                model.check(step.offset(), &data).expect("what was written");
            }
        }
    }
    for step in round {
        let (offset, len) = (step.offset(), u64::from(step.len()));
        match step.kind {
            Kind::Write => model.write(offset, &step.data()),
            Kind::Zero => model.zero(offset, len),
            Kind::Discard => model.discard(offset, len),
            Kind::Read | Kind::Flush | Kind::Cache => {}
        }
    }
}

fn agrees(front: Front, cases: u32, over: impl Fn(Dispatch) -> Fresh) {
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    let sequences = (steps(), prop::sample::select(&stack::DISPATCHES));
    let result = runner.run(&sequences, |(steps, dispatch)| {
        on_each_backend(front, || over(dispatch), |server| play_all(server, &steps));
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

fn cases() -> u32 {
    if is_sparing() { CASES_FEW } else { CASES }
}

fn agrees_when_sent_together(front: Front, cases: u32) {
    agrees(front, cases, |dispatch| stack::dispatched_over_ram(4 << 20, dispatch));
    agrees(front, cases, |dispatch| stack::dispatched_over_file(4 << 20, dispatch));
}

fn agrees_over_a_slow_medium(front: Front, cases: u32) {
    agrees(front, cases, |dispatch| {
        let medium = devices::delayed(stack::ram(4 << 20), devices::QUICK);
        devices::dispatched(medium, &stack::AES_512, dispatch)
    });
}

pub fn requests_that_are_sent_together_agree_with_the_model(front: Front) {
    agrees_when_sent_together(front, cases());
}

pub fn requests_over_a_slow_medium_agree_with_the_model(front: Front) {
    agrees_over_a_slow_medium(front, cases());
}

/// Both of them for a night.
pub fn many_requests_agree_with_the_model(front: Front) {
    agrees_when_sent_together(front, CASES_OF_A_NIGHT);
    agrees_over_a_slow_medium(front, CASES_OF_A_NIGHT);
}
