//! Zones: between `submit` and the completion there is no heap allocation, whoever waits for whom.

use cryptline_engine::dispatch::DispatchMode;
use cryptline_engine::{Arena, BackendChoice, Buffer, Channel, Completion, Gate, Request, Submitted, ZoneAction};
use cryptline_testkit::alloc;

use crate::common::*;

const DEPTH: usize = 16;
/// Small ones, and such as helpers encrypt ahead under `auto`.
const BLOCKS: [(u64, DispatchMode); 2] = [(8192, DispatchMode::Inline), (128 * K, DispatchMode::Auto)];
/// Zones that are written in turns.
const LANES: u32 = 3;

/// Writes round after round: each zone to its end by writes and appends, a flush, and a reset.
struct Load {
    block: u64,
    channel: Channel,
    buffers: Vec<Buffer>,
    done: Vec<Completion>,
    in_flight: usize,
}

impl Load {
    fn new(gate: &Gate, backend: BackendChoice, block: u64) -> Self {
        let arena = Arena::new(usize::try_from(block).unwrap(), 2 * DEPTH).unwrap();
        Self {
            block,
            channel: Channel::open(gate, backend, 64).unwrap(),
            buffers: (0..2 * DEPTH).map(|_| arena.take().unwrap()).collect(),
            done: Vec::with_capacity(64),
            in_flight: 0,
        }
    }

    fn submit(&mut self, request: Request) {
        self.in_flight += 1;
        if let Submitted::Done(completion) = self.channel.submit(request) {
            self.take_back(completion);
        }
        while self.in_flight > DEPTH {
            self.wait();
        }
    }

    fn wait(&mut self) {
        self.channel.wait(&mut self.done).unwrap();
        while let Some(completion) = self.done.pop() {
            self.take_back(completion);
        }
    }

    fn take_back(&mut self, completion: Completion) {
        completion.result.unwrap();
        self.in_flight -= 1;
        self.buffers.extend(completion.request.data);
    }

    fn round(&mut self) {
        let block = self.block;
        for index in 0..CAPACITY / block {
            let at = index * block;
            for zone in 2..2 + LANES {
                let buffer = self.buffers.pop().unwrap();
                let durable = index == 4;
                self.submit(match index % 2 {
                    0 => Request::write(start(zone) + at, buffer, durable, at),
                    _ => Request::zone_append(start(zone), buffer, durable, at),
                });
            }
            let buffer = self.buffers.pop().unwrap();
            self.submit(Request::read(start(2), buffer, at));
        }
        self.submit(Request::flush(1));
        (2..2 + LANES).for_each(|zone| {
            self.submit(Request::zone(start(zone), ZoneAction::Reset, 2));
        });
        self.submit(Request::zone(0, ZoneAction::ResetAll, 3));
        while self.in_flight > 0 {
            self.wait();
        }
    }
}

pub fn written_finished_and_reset() {
    for backend in [BackendChoice::Auto, BackendChoice::Syscalls] {
        for (block, mode) in BLOCKS {
            for (name, lower) in [
                ("ram", ram(layout())),
                ("slow zones", slow(layout())),
                ("zones over a slow disk", over_slow(layout())),
                ("file", file()),
            ] {
                let fresh = encrypted(lower, mode);
                let mut load = Load::new(&fresh.gate, backend, block);
                // The first rounds find the paths that are taken once. A table may grow later, when more is under way than
                // ever before; what each request takes is in every round.
                load.round();
                load.round();
                let is_steady = (0..super::TRIES).any(|_| {
                    let before = alloc::calls();
                    load.round();
                    alloc::calls() == before
                });
                assert!(is_steady, "{name} over {backend:?}, {mode}, {block} bytes");
            }
        }
    }
}
