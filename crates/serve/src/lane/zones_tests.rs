//! Appends and actions on zones, from a wire that asks for one thing after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use cryptline_engine::base::{RamDevice, ZonedDevice};
use cryptline_engine::layer::zoned;
use cryptline_engine::zone::ZoneLayout;
use cryptline_engine::{BackendChoice, Buffer, Fault, Gate, Op, Ring, Zone, ZoneCondition};

use super::*;

const ZONE: u64 = 1 << 20;

/// Asks for one thing after the other, and keeps how each ended.
#[derive(Default)]
struct Script {
    asks: VecDeque<(Op, u64, u64)>,
    is_busy: bool,
    place: Option<u64>,
    ends: Vec<(Option<u64>, Result<(), Fault>)>,
    /// Rounds of work of its own, and how many were left when the first request ended.
    own_work: u32,
    left_at_end: Option<u32>,
}

impl Wire for Script {
    type Tag = ();

    fn take(&mut self, room: &LaneRoom) -> Option<WireInput<()>> {
        if self.is_busy || !room.has_job() {
            return None;
        }
        let (op, offset, length) = self.asks.pop_front()?;
        self.is_busy = true;
        Some(WireInput::Asked(WireRequest::new(op, offset, length)))
    }

    fn bring(&mut self, (): (), chunk: WriteChunk, room: &LaneRoom) -> Brought {
        room.buffer(chunk.len).map_or(Brought::NoRoom, |mut data| {
            data.fill(7);
            Brought::Now(data)
        })
    }

    fn give(&mut self, (): (), _at: u64, _data: Buffer, _last: bool) {}

    fn placed(&mut self, (): (), offset: u64) {
        self.place = Some(offset);
    }

    fn end(&mut self, (): (), result: Result<(), Fault>) {
        self.is_busy = false;
        self.left_at_end.get_or_insert(self.own_work);
        self.ends.push((self.place.take(), result));
    }

    fn arm(&mut self, _ring: &mut Ring, _room: &LaneRoom) -> bool {
        self.own_work = self.own_work.saturating_sub(1);
        !self.is_busy && !self.asks.is_empty()
    }

    fn has_work(&self) -> bool {
        self.own_work > 0
    }

    fn stop(&mut self) {}

    fn is_over(&self) -> bool {
        self.asks.is_empty() && !self.is_busy && self.own_work == 0
    }
}

fn lane(gate: &Gate, script: Script) -> Lane<Script> {
    Lane::new(gate, BackendChoice::Syscalls, Arc::default(), None, |_| Ok(script)).unwrap()
}

/// How each of them ends, with the place of an append.
fn ends_of(gate: &Gate, asks: &[(Op, u64, u64)]) -> Vec<(Option<u64>, Result<(), Fault>)> {
    let mut lane = lane(gate, Script { asks: asks.iter().copied().collect(), ..Script::default() });
    lane.run().unwrap();
    assert_eq!(lane.room.jobs_left, JOBS_MAX, "every job has ended");
    std::mem::take(&mut lane.wire.ends)
}

fn zones() -> Gate {
    let layout = ZoneLayout::new(4 * ZONE, ZONE).unwrap().check().unwrap();
    let ram = Gate::new(RamDevice::new(layout.size()).unwrap());
    zoned::ordered(Gate::new(ZonedDevice::in_memory(ram, layout).unwrap())).unwrap()
}

#[test]
fn requests_go_on_while_the_wire_has_work_of_its_own() {
    let script = Script { asks: [(Op::Append, 0, 4096)].into(), own_work: 1000, ..Script::default() };
    let mut lane = lane(&zones(), script);
    lane.run().unwrap();
    assert_eq!(lane.wire.own_work, 0);
    assert!(lane.wire.left_at_end.is_some_and(|left| left > 900));
}

#[test]
fn append_tells_where_its_bytes_are() {
    let gate = zones();
    let asks = [
        (Op::Append, ZONE, 8192),
        (Op::AppendFua, ZONE, 4096),
        (Op::Write, ZONE + 12288, 4096),
        (Op::Append, ZONE, 4096),
        // No zone starts there.
        (Op::Append, ZONE + 4096, 4096),
    ];
    let ends = ends_of(&gate, &asks);
    assert_eq!(
        ends,
        [
            (Some(ZONE), Ok(())),
            (Some(ZONE + 8192), Ok(())),
            (None, Ok(())),
            (Some(ZONE + 16384), Ok(())),
            (None, Err(Fault::Misaligned)),
        ]
    );
}

#[test]
fn actions_change_the_zone_that_they_name() {
    let gate = zones();
    let asks = [
        (Op::Append, 0, 4096),
        (Op::ZoneFinish, ZONE, 0),
        (Op::Append, ZONE, 4096),
        (Op::ZoneOpen, 2 * ZONE, 0),
        (Op::Append, 3 * ZONE, 4096),
        (Op::ZoneReset, 0, 0),
        (Op::ZoneClose, 3 * ZONE, 0),
        (Op::ZoneClose, 100 * ZONE, 0),
    ];
    let failed: Vec<_> = ends_of(&gate, &asks)
        .into_iter()
        .enumerate()
        .filter_map(|(number, (_, result))| Some((number, result.err()?)))
        .collect();
    assert_eq!(failed[1..], [(7, Fault::OutOfRange)]);
    assert_eq!(failed[0].0, 2, "nothing is appended to a full zone");
    let mut report = [Zone::default(); 4];
    assert_eq!(gate.report_zones(0, &mut report), Ok(4));
    assert_eq!(
        report.map(|zone| zone.condition),
        [ZoneCondition::Empty, ZoneCondition::Full, ZoneCondition::ExplicitOpen, ZoneCondition::Closed,]
    );
    assert!(ends_of(&gate, &[(Op::ZoneResetAll, 0, 0)])[0].1.is_ok());
    assert_eq!(gate.report_zones(0, &mut report), Ok(4));
    assert!(report.iter().all(|zone| zone.condition == ZoneCondition::Empty));
}
