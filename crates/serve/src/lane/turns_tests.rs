//! A peer that has asked for more each time the lane looks, over a medium that answers at once.

use std::sync::Arc;

use cryptline_engine::base::RamDevice;
use cryptline_engine::{BackendChoice, Buffer, Fault, Gate, Op, Ring};

use super::*;

/// Turns after which the peer stops asking by itself.
const TURNS: u32 = 1000;

#[derive(Default)]
struct Insatiable {
    turns: u32,
    has_asked: bool,
    ended: u32,
    /// Turns before the first look at the ring, which satisfies it.
    looked_after: Option<u32>,
}

impl Wire for Insatiable {
    type Tag = ();

    fn take(&mut self, _room: &LaneRoom) -> Option<WireInput<()>> {
        std::mem::take(&mut self.has_asked).then_some(WireInput::Asked(WireRequest::new(Op::Flush, 0, 0)))
    }

    fn bring(&mut self, (): (), _chunk: WriteChunk, _room: &LaneRoom) -> Brought {
        Brought::Never
    }

    fn give(&mut self, (): (), _at: u64, _data: Buffer, _last: bool) {}

    fn end(&mut self, (): (), _result: Result<(), Fault>) {
        self.ended += 1;
    }

    fn arm(&mut self, _ring: &mut Ring, _room: &LaneRoom) -> bool {
        self.turns += 1;
        self.has_asked = !self.is_over();
        self.has_asked
    }

    fn reap(&mut self, _ring: &mut Ring) {
        self.looked_after.get_or_insert(self.turns);
    }

    fn stop(&mut self) {}

    fn is_over(&self) -> bool {
        self.looked_after.is_some() || self.turns >= TURNS
    }
}

#[test]
fn ring_is_looked_at_though_the_peer_never_stops_asking() {
    let gate = Gate::new(RamDevice::new(1 << 20).unwrap());
    let orders = Arc::new(Orders::default());
    let mut lane = Lane::new(&gate, BackendChoice::Syscalls, orders, None, |_| Ok(Insatiable::default())).unwrap();
    lane.run().unwrap();
    assert_eq!(lane.wire.looked_after, Some(TURNS_UNLOOKED + 1));
    assert_eq!(lane.wire.ended, lane.wire.turns - 1, "each has ended");
}
