//! Random pipelined requests over one to three connections, compared with a model disk.
//!
//! Requests in flight together must not conflict, or the protocol leaves open who wins: each
//! connection has its own part of the disk, and a request that conflicts with one before it in
//! its round waits for the next round.

use cryptline_engine::BackendChoice;
use cryptline_engine::dispatch::Dispatch;
use cryptline_nbd::wire::{cmd, cmd_flag};
use cryptline_testkit::model::ModelDisk;
use cryptline_testkit::suite::{Fresh, devices};
use proptest::prelude::*;

use crate::common::raw::{Raw, Style};
use crate::common::{BACKENDS, Setup, pattern, stack};

/// Bytes of one connection's part.
const PART: u64 = 1 << 20;
/// Bytes in the unit of offsets and lengths.
const BLOCK: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Zero,
    Trim,
    Flush,
    Cache,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    connection: usize,
    /// In blocks, inside the connection's part.
    start: u64,
    blocks: u64,
    fua: bool,
    seed: u64,
}

impl Step {
    fn offset(&self) -> u64 {
        self.connection as u64 * PART + self.start * BLOCK
    }

    fn len(&self) -> u32 {
        u32::try_from(self.blocks * BLOCK).expect("inside a part")
    }

    fn conflicts(&self, other: &Self) -> bool {
        let reads = |step: &Self| matches!(step.kind, Kind::Read | Kind::Cache | Kind::Flush);
        let apart =
            self.start + self.blocks <= other.start || other.start + other.blocks <= self.start;
        self.connection == other.connection && !apart && !(reads(self) && reads(other))
    }

    fn flags(&self) -> u16 {
        if self.fua { cmd_flag::FUA } else { 0 }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![
        6 => Just(Kind::Read),
        6 => Just(Kind::Write),
        2 => Just(Kind::Zero),
        1 => Just(Kind::Trim),
        1 => Just(Kind::Flush),
        1 => Just(Kind::Cache),
    ];
    let blocks = PART / BLOCK;
    let len = prop_oneof![3 => 1..4_u64, 2 => 1..40_u64, 1 => 1..=blocks];
    let step = (
        kind,
        0..3_usize,
        0..blocks,
        len,
        any::<bool>(),
        any::<u64>(),
    );
    let step = step.prop_map(move |(kind, connection, start, len, fua, seed)| Step {
        kind,
        connection,
        start,
        blocks: len.min(blocks - start),
        fua: fua && seed % 4 == 0,
        seed,
    });
    prop::collection::vec(step, 1..150)
}

fn run(over: Fresh, backend: BackendChoice, style: Style, steps: &[Step]) {
    let served = Setup::new(over).backend(backend).start();
    let mut clients: Vec<Raw> = (0..3).map(|_| Raw::connect_as(&served, style)).collect();
    let mut model = ModelDisk::new(3 * PART);
    let mut left = steps;
    while !left.is_empty() {
        let conflict = |index: &usize| {
            left[..*index]
                .iter()
                .any(|step| step.conflicts(&left[*index]))
        };
        let round = (0..left.len()).find(conflict).unwrap_or(left.len());
        let (now, later) = left.split_at(round);
        play(&mut clients, &mut model, now);
        left = later;
    }
    for (connection, client) in clients.iter_mut().enumerate() {
        let offset = connection as u64 * PART;
        let read = client.read(offset, u32::try_from(PART).expect("small"));
        model.check(offset, &read).expect("the last state");
    }
    served.end_well();
}

/// Sends all of one round at once, and checks all answers.
fn play(clients: &mut [Raw], model: &mut ModelDisk, round: &[Step]) {
    let sent: Vec<(u64, &Step)> = (round.iter())
        .map(|step| (send(&mut clients[step.connection], step), step))
        .collect();
    for (connection, client) in clients.iter_mut().enumerate() {
        let own = sent
            .iter()
            .filter(|(_, step)| step.connection == connection);
        let mut answers = client.answers(own.clone().count());
        for (cookie, step) in own {
            let data = answers.remove(cookie).expect("one each").data();
            if step.kind == Kind::Read {
                model.check(step.offset(), &data).expect("what was written");
            }
        }
    }
    for step in round {
        let (offset, len) = (step.offset(), u64::from(step.len()));
        match step.kind {
            Kind::Write => model.write(offset, &data_of(step)),
            Kind::Zero => model.zero(offset, len),
            Kind::Trim => model.discard(offset, len),
            Kind::Read | Kind::Flush | Kind::Cache => {}
        }
    }
}

fn send(client: &mut Raw, step: &Step) -> u64 {
    let range = (step.offset(), step.len());
    match step.kind {
        Kind::Read => client.send(cmd::READ, 0, range),
        Kind::Write => client.send_write(step.flags(), step.offset(), &data_of(step)),
        Kind::Zero => client.send(cmd::WRITE_ZEROES, step.flags(), range),
        Kind::Trim => client.send(cmd::TRIM, step.flags(), range),
        Kind::Flush => client.send(cmd::FLUSH, 0, (0, 0)),
        Kind::Cache => client.send(cmd::CACHE, 0, range),
    }
}

fn data_of(step: &Step) -> Vec<u8> {
    pattern(step.offset(), step.len() as usize, step.seed)
}

/// How a sequence is played: whoever runs the cipher, in either style of replies.
fn how() -> impl Strategy<Value = (Dispatch, Style)> {
    let styles = prop_oneof![Just(Style::Simple), Just(Style::Structured)];
    (prop::sample::select(&stack::DISPATCHES), styles)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_requests_agree_with_the_model_over_memory(
        steps in steps(),
        (dispatch, style) in how(),
    ) {
        for backend in BACKENDS {
            run(stack::dispatched_over_ram(4 << 20, dispatch), backend, style, &steps);
        }
    }

    #[test]
    fn random_requests_agree_with_the_model_over_a_file(
        steps in steps(),
        (dispatch, style) in how(),
    ) {
        for backend in BACKENDS {
            run(stack::dispatched_over_file(4 << 20, dispatch), backend, style, &steps);
        }
    }

    #[test]
    fn random_requests_agree_with_the_model_over_a_slow_medium(
        steps in steps(),
        (dispatch, style) in how(),
    ) {
        for backend in BACKENDS {
            let medium = devices::delayed(stack::ram(4 << 20), devices::QUICK);
            let over = devices::dispatched(medium, &stack::AES_512, dispatch);
            run(over, backend, style, &steps);
        }
    }
}
