//! The state machine, step by step and against a model of it.

use proptest::prelude::*;

use super::*;

const K: u64 = 4096;
const ZONE: u64 = 16 * K;

fn layout(max_open: u32, max_active: u32) -> ZoneLayout {
    let mut layout = ZoneLayout::new(9 * ZONE, ZONE).unwrap();
    layout.capacity = 12 * K;
    layout.conventional = 2;
    (layout.max_open, layout.max_active) = (max_open, max_active);
    layout.check().unwrap()
}

fn table(max_open: u32, max_active: u32) -> ZoneTable {
    ZoneTable::new(layout(max_open, max_active))
}

fn write(table: &ZoneTable, index: u32, at: u64, len: u64) -> Result<(), Fault> {
    table.begin_write(index, Some(at), len)?;
    table.end_write(index, len);
    Ok(())
}

fn reset(table: &ZoneTable, index: u32) -> Result<(), Fault> {
    if table.begin_reset(index)? {
        table.end_reset(index);
    }
    Ok(())
}

fn state(table: &ZoneTable, index: u32) -> (Condition, u64) {
    let zone = table.report(index);
    (zone.condition, zone.write_pointer - zone.start)
}

#[test]
fn write_must_start_at_the_write_pointer_and_stay_in_the_capacity() {
    let table = table(0, 0);
    assert_eq!(write(&table, 2, K, K), Err(Fault::WritePointer));
    assert_eq!(state(&table, 2), (Condition::Empty, 0));
    write(&table, 2, 0, 3 * K).unwrap();
    assert_eq!(state(&table, 2), (Condition::ImplicitOpen, 3 * K));
    assert_eq!(write(&table, 2, 0, K), Err(Fault::WritePointer));
    assert_eq!(write(&table, 2, 3 * K, 10 * K), Err(Fault::WritePointer));
    write(&table, 2, 3 * K, 9 * K).unwrap();
    assert_eq!(state(&table, 2), (Condition::Full, 12 * K));
    assert_eq!(write(&table, 2, 12 * K, K), Err(Fault::WritePointer));
    assert_eq!(table.begin_write(2, None, K), Err(Fault::WritePointer));
}

#[test]
fn append_goes_to_the_write_pointer() {
    let table = table(0, 0);
    for at in 0..12 {
        assert_eq!(table.begin_write(8, None, K), Ok(at * K));
        table.end_write(8, K);
    }
    assert_eq!(state(&table, 8), (Condition::Full, 12 * K));
}

#[test]
fn failed_write_leaves_the_write_pointer_and_the_zone_open() {
    let table = table(0, 0);
    table.begin_write(2, Some(0), K).unwrap();
    assert_eq!(table.begin_write(2, None, K), Err(Fault::ZoneBusy));
    assert_eq!(table.begin_write(2, Some(K), K), Err(Fault::WritePointer));
    assert_eq!(table.finish(2), Err(Fault::ZoneBusy));
    assert_eq!(table.begin_reset(2), Err(Fault::ZoneBusy));
    table.end_write(2, 0);
    assert_eq!(state(&table, 2), (Condition::ImplicitOpen, 0));
    table.close(2).unwrap();
    assert_eq!(state(&table, 2), (Condition::Empty, 0));
}

#[test]
fn finished_zone_reports_its_end_and_reads_as_far_as_it_was_written() {
    let table = table(0, 0);
    write(&table, 3, 0, 2 * K).unwrap();
    table.finish(3).unwrap();
    table.finish(3).unwrap();
    assert_eq!(state(&table, 3), (Condition::Full, ZONE));
    assert_eq!(table.readable(3), Ok(2 * K));
    assert_eq!(table.open(3), Err(Fault::ZoneCondition));
    assert_eq!(table.close(3), Err(Fault::ZoneCondition));
    reset(&table, 3).unwrap();
    assert_eq!(state(&table, 3), (Condition::Empty, 0));
    assert_eq!(table.readable(3), Ok(0));
}

#[test]
fn close_makes_an_unwritten_zone_empty_and_refuses_an_empty_one() {
    let table = table(0, 0);
    table.open(2).unwrap();
    table.open(2).unwrap();
    assert_eq!(state(&table, 2), (Condition::ExplicitOpen, 0));
    table.close(2).unwrap();
    assert_eq!(state(&table, 2), (Condition::Empty, 0));
    assert_eq!(table.close(2), Err(Fault::ZoneCondition));
    write(&table, 2, 0, K).unwrap();
    table.close(2).unwrap();
    table.close(2).unwrap();
    assert_eq!(state(&table, 2), (Condition::Closed, K));
}

#[test]
fn conventional_zone_has_no_write_pointer_and_takes_no_action() {
    let table = table(0, 0);
    let zone = table.report(1);
    assert_eq!(zone.condition, Condition::NotWritePointer);
    assert_eq!((zone.start, zone.write_pointer), (ZONE, 2 * ZONE));
    let refused = Err(Fault::ZoneCondition);
    assert_eq!(table.open(1), refused);
    assert_eq!(table.close(1), refused);
    assert_eq!(table.finish(1), refused);
    assert_eq!(table.begin_reset(1), Err(Fault::ZoneCondition));
    assert_eq!(table.begin_write(1, None, K), Err(Fault::ZoneCondition));
    assert_eq!(table.readable(1), Ok(ZONE));
}

#[test]
fn opening_one_more_closes_an_implicitly_open_zone_in_turn() {
    let table = table(2, 0);
    for index in [2, 3, 4, 5] {
        write(&table, index, 0, K).unwrap();
    }
    let conditions = [2, 3, 4, 5].map(|index| state(&table, index).0);
    let (closed, open) = (Condition::Closed, Condition::ImplicitOpen);
    assert_eq!(conditions, [closed, closed, open, open]);
    // The next to be closed is the one behind the last that was.
    write(&table, 2, K, K).unwrap();
    assert_eq!(state(&table, 4).0, closed);
}

#[test]
fn explicitly_open_zones_are_never_closed_for_another() {
    let table = table(2, 0);
    table.open(2).unwrap();
    table.open(3).unwrap();
    assert_eq!(write(&table, 4, 0, K), Err(Fault::TooManyOpen));
    assert_eq!(table.open(4), Err(Fault::TooManyOpen));
    assert_eq!(table.finish(4), Err(Fault::TooManyOpen));
    table.close(2).unwrap();
    write(&table, 4, 0, K).unwrap();
}

#[test]
fn closed_zones_count_as_active_and_finish_and_reset_free_their_place() {
    let table = table(1, 2);
    write(&table, 2, 0, K).unwrap();
    write(&table, 3, 0, K).unwrap();
    assert_eq!(write(&table, 4, 0, K), Err(Fault::TooManyActive));
    assert_eq!(table.open(4), Err(Fault::TooManyActive));
    table.finish(3).unwrap();
    write(&table, 4, 0, K).unwrap();
    reset(&table, 4).unwrap();
    write(&table, 5, 0, K).unwrap();
}

#[test]
fn closed_zone_can_not_take_the_place_of_an_implicit_one_at_the_active_limit() {
    // As null_blk: it asks for room for one more active zone though this one is active.
    let table = table(1, 2);
    write(&table, 2, 0, K).unwrap();
    write(&table, 3, 0, K).unwrap();
    assert_eq!(state(&table, 2).0, Condition::Closed);
    assert_eq!(write(&table, 2, K, K), Err(Fault::TooManyOpen));
}

#[test]
fn zone_that_is_being_written_is_not_closed_for_another() {
    let table = table(1, 0);
    table.begin_write(2, Some(0), K).unwrap();
    assert_eq!(write(&table, 3, 0, K), Err(Fault::TooManyOpen));
    table.end_write(2, K);
    write(&table, 3, 0, K).unwrap();
}

#[test]
fn retired_zone_is_read_or_not_and_never_changed() {
    let table = table(0, 0);
    write(&table, 2, 0, K).unwrap();
    write(&table, 3, 0, K).unwrap();
    table.retire(2, Condition::ReadOnly).unwrap();
    table.retire(3, Condition::Offline).unwrap();
    for index in [2, 3] {
        assert_eq!(write(&table, index, K, K), Err(Fault::ZoneCondition));
        assert_eq!(table.begin_reset(index), Err(Fault::ZoneCondition));
        assert_eq!(table.open(index), Err(Fault::ZoneCondition));
        assert_eq!(table.finish(index), Err(Fault::ZoneCondition));
    }
    assert_eq!(table.readable(2), Ok(K));
    assert_eq!(table.readable(3), Err(Fault::ZoneCondition));
}

#[test]
fn restart_closes_what_was_open_and_keeps_the_rest() {
    let table = table(3, 5);
    write(&table, 2, 0, K).unwrap();
    table.open(3).unwrap();
    write(&table, 4, 0, 12 * K).unwrap();
    write(&table, 5, 0, K).unwrap();
    table.finish(5).unwrap();
    let again = ZoneTable::load(*table.layout(), |index| table.saved(index));
    assert_eq!(state(&again, 2), (Condition::Closed, K));
    assert_eq!(state(&again, 3), (Condition::Empty, 0));
    assert_eq!(state(&again, 4), (Condition::Full, 12 * K));
    assert_eq!(state(&again, 5), (Condition::Full, ZONE));
    assert_eq!(again.readable(5), Ok(K));
}

#[test]
fn zones_written_by_several_threads_all_end_full_within_the_limits() {
    let table = table(2, 0);
    std::thread::scope(|scope| {
        for index in 2..9 {
            let table = &table;
            scope.spawn(move || {
                let mut at = 0;
                while at < 12 * K {
                    match write(table, index, at, K) {
                        Ok(()) => at += K,
                        Err(Fault::TooManyOpen) => std::thread::yield_now(),
                        Err(fault) => panic!("{fault}"),
                    }
                }
            });
        }
    });
    assert!((2..9).all(|index| state(&table, index).0 == Condition::Full));
    let counts = lock(&table.counts);
    assert_eq!((counts.implicit, counts.explicit, counts.closed), (0, 0, 0));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u32, u64, u64),
    Append(u32, u64),
    Open(u32),
    Close(u32),
    Finish(u32),
    Reset(u32),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let zone = 2..9u32;
    prop_oneof![
        4 => (zone.clone(), 0..12u64, 1..12u64).prop_map(|(zone, at, len)| Step::Write(zone, at * K, len * K)),
        6 => (zone.clone(), 1..6u64).prop_map(|(zone, len)| Step::Append(zone, len * K)),
        2 => zone.clone().prop_map(Step::Open),
        2 => zone.clone().prop_map(Step::Close),
        1 => zone.clone().prop_map(Step::Finish),
        2 => zone.prop_map(Step::Reset),
        1 => Just(Step::Restart),
    ]
}

/// The zones as a plain list; everything is counted afresh each time it is asked for.
struct Model {
    zones: Vec<(Condition, u64)>,
    next: usize,
    layout: ZoneLayout,
}

impl Model {
    fn count(&self, is: impl Fn(Condition) -> bool) -> u32 {
        u32::try_from(self.zones.iter().filter(|zone| is(zone.0)).count()).unwrap()
    }

    fn room(&mut self, zone: usize) -> Result<(), Fault> {
        let active = self.count(Condition::is_active);
        let open = self.count(Condition::is_open);
        let no_more_active = self.layout.max_active > 0 && active >= self.layout.max_active;
        let no_more_open = self.layout.max_open > 0 && open >= self.layout.max_open;
        if self.zones[zone].0 == Condition::Empty && no_more_active {
            return Err(Fault::TooManyActive);
        }
        if !no_more_open {
            return Ok(());
        }
        let order = (self.next..7).chain(0..self.next);
        let implicit = order.into_iter().find(|&at| self.zones[at].0 == Condition::ImplicitOpen);
        let Some(victim) = implicit.filter(|_| !no_more_active) else {
            return Err(Fault::TooManyOpen);
        };
        self.zones[victim].0 = match self.zones[victim].1 {
            0 => Condition::Empty,
            _ => Condition::Closed,
        };
        self.next = (victim + 1) % 7;
        Ok(())
    }

    fn run(&mut self, step: Step) -> Result<(), Fault> {
        use Condition as C;
        match step {
            Step::Append(zone, len) => {
                let at = self.zones[zone as usize - 2].1;
                self.write(zone as usize - 2, at, len)
            }
            Step::Write(zone, at, len) => self.write(zone as usize - 2, at, len),
            Step::Open(zone) => self.take_place(zone, C::ExplicitOpen, &[C::ImplicitOpen]),
            Step::Finish(zone) => {
                let was_full = self.zones[zone as usize - 2].0 == C::Full;
                self.take_place(zone, C::Full, &[C::ImplicitOpen, C::ExplicitOpen])?;
                if !was_full {
                    self.zones[zone as usize - 2].1 = ZONE;
                }
                Ok(())
            }
            Step::Close(zone) => {
                let zone = &mut self.zones[zone as usize - 2];
                match zone.0 {
                    C::ImplicitOpen | C::ExplicitOpen if zone.1 == 0 => zone.0 = C::Empty,
                    C::ImplicitOpen | C::ExplicitOpen | C::Closed => zone.0 = C::Closed,
                    _ => return Err(Fault::ZoneCondition),
                }
                Ok(())
            }
            Step::Reset(zone) => {
                self.zones[zone as usize - 2] = (C::Empty, 0);
                Ok(())
            }
            Step::Restart => {
                for zone in &mut self.zones {
                    if zone.0.is_open() {
                        zone.0 = if zone.1 == 0 { C::Empty } else { C::Closed };
                    }
                }
                self.next = 0;
                Ok(())
            }
        }
    }

    fn write(&mut self, zone: usize, at: u64, len: u64) -> Result<(), Fault> {
        let (condition, pointer) = self.zones[zone];
        let full = condition == Condition::Full;
        if full || at != pointer || pointer + len > self.layout.capacity {
            return Err(Fault::WritePointer);
        }
        if !condition.is_open() {
            self.room(zone)?;
            self.zones[zone].0 = Condition::ImplicitOpen;
        }
        self.zones[zone].1 += len;
        if self.zones[zone].1 == self.layout.capacity {
            self.zones[zone].0 = Condition::Full;
        }
        Ok(())
    }

    /// Open and finish: from any condition that takes a place, through that place.
    fn take_place(&mut self, zone: u32, to: Condition, free: &[Condition]) -> Result<(), Fault> {
        let zone = zone as usize - 2;
        let from = self.zones[zone].0;
        match from {
            same if same == to => return Ok(()),
            Condition::Empty | Condition::Closed => self.room(zone)?,
            other if free.contains(&other) => {}
            _ => return Err(Fault::ZoneCondition),
        }
        self.zones[zone].0 = to;
        Ok(())
    }
}

proptest! {
    #[test]
    fn random_operations_end_as_in_the_model(
        limits in (0..5u32, 0..7u32),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let layout = layout(limits.0, limits.1);
        let mut table = ZoneTable::new(layout);
        let mut model = Model { zones: vec![(Condition::Empty, 0); 7], next: 0, layout };
        for step in steps {
            let result = match step {
                Step::Write(zone, at, len) => write(&table, zone, at, len),
                Step::Append(zone, len) => table
                    .begin_write(zone, None, len)
                    .map(|_| table.end_write(zone, len)),
                Step::Open(zone) => table.open(zone),
                Step::Close(zone) => table.close(zone),
                Step::Finish(zone) => table.finish(zone),
                Step::Reset(zone) => reset(&table, zone),
                Step::Restart => {
                    table = ZoneTable::load(layout, |index| table.saved(index));
                    Ok(())
                }
            };
            prop_assert_eq!(result, model.run(step), "{:?}", step);
            for index in 2..9 {
                prop_assert_eq!(state(&table, index), model.zones[index as usize - 2]);
            }
        }
    }
}
