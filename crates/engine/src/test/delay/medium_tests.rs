//! The arithmetic of the medium, on a clock of our own.

use cryptline_sys::Buffer;

use super::*;

const SIZE: u64 = 1 << 30;

fn medium(spec: &str) -> DelayedMedium {
    DelayedMedium::new(spec.parse().unwrap(), SIZE)
}

fn read(offset: u64, len: usize) -> Request {
    Request::read(offset, Buffer::alloc(len).unwrap(), 0)
}

fn write(offset: u64, len: usize) -> Request {
    Request::write(offset, Buffer::alloc(len).unwrap(), false, 0)
}

#[test]
fn each_kind_of_operation_has_its_own_time() {
    let medium = medium("read=1us,write=2us,flush=3us,discard=4us");
    let range = |op| Request::new(op, 0, 512, 0);
    for (request, time) in [
        (read(0, 512), 1000),
        (write(0, 512), 2000),
        (Request::flush(0), 3000),
        (range(Op::Discard), 4000),
        (range(Op::ZeroUnmap), 4000),
    ] {
        assert_eq!(medium.take_at(&request, 7), 7 + time, "{request:?}");
    }
}

#[test]
fn any_number_work_side_by_side_unless_parallel_says_otherwise() {
    let free = medium("read=10us");
    let ends: Vec<u64> = (0..5).map(|_| free.take_at(&read(0, 512), 0)).collect();
    assert_eq!(ends, [10_000; 5]);
    let two = medium("read=10us,parallel=2");
    let ends: Vec<u64> = (0..5).map(|_| two.take_at(&read(0, 512), 0)).collect();
    assert_eq!(ends, [10_000, 10_000, 20_000, 20_000, 30_000]);
    // A worker that had nothing to do does not save up time.
    assert_eq!(two.take_at(&read(0, 512), 100_000), 110_000);
}

#[test]
fn operation_without_a_time_waits_behind_one_that_has() {
    let one = medium("write=10us,parallel=1");
    assert_eq!(one.take_at(&write(0, 512), 0), 10_000);
    assert_eq!(one.take_at(&read(0, 512), 1_000), 10_000);
    assert_eq!(one.take_at(&read(0, 512), 20_000), 20_000);
}

#[test]
fn seek_is_paid_where_the_last_transfer_did_not_end() {
    let disk = medium("read=1us,write=1us,seek=4ms,parallel=1");
    let mut now = 0;
    let mut cost = |request: Request| {
        let end = disk.take_at(&request, now);
        let cost = end - now;
        now = end;
        cost
    };
    let (near, far) = (1_000, 4_001_000);
    assert_eq!(cost(read(0, 4096)), near);
    assert_eq!(cost(write(4096, 4096)), near);
    assert_eq!(cost(read(4096, 4096)), far);
    // A flush moves nothing.
    assert_eq!(cost(Request::flush(0)), 0);
    assert_eq!(cost(read(8192, 512)), near);
    assert_eq!(cost(read(1 << 20, 512)), far);
}

#[test]
fn seek_by_distance_grows_to_the_whole_disk() {
    let disk = medium("seek=1ms..9ms");
    assert_eq!(disk.take_at(&read(SIZE - 512, 512), 0), 8_999_996);
    assert_eq!(disk.take_at(&read(SIZE / 2, 512), 0), 5_000_000);
    assert_eq!(disk.take_at(&read(SIZE / 2 + 1024, 512), 0), 1_000_003);
}

#[test]
fn rate_bounds_all_transfers_together() {
    // A MiB in a second, as the sizes count.
    let slow = medium("rate=1M,read=1ms");
    let quarter = 1 << 18;
    assert_eq!(slow.take_at(&read(0, quarter), 0), 251_000_000);
    assert_eq!(slow.take_at(&read(0, quarter), 0), 500_000_000);
    assert_eq!(slow.take_at(&read(0, quarter), 0), 750_000_000);
    // What carries no data does not use the cable.
    assert_eq!(slow.take_at(&Request::flush(0), 5), 5);
    assert_eq!(slow.take_at(&read(0, quarter), 2_000_000_000), 2_251_000_000);
}

#[test]
fn same_seed_draws_the_same_times_and_another_does_not() {
    let draw = |spec: &str| -> Vec<u64> {
        let medium = medium(spec);
        (0..100).map(|_| medium.take_at(&read(0, 512), 0)).collect()
    };
    let first = draw("read=20us..40us,seed=7");
    assert_eq!(first, draw("read=20us..40us,seed=7"));
    assert_ne!(first, draw("read=20us..40us,seed=8"));
}

#[test]
fn uniform_times_fill_their_range_and_nothing_else() {
    let medium = medium("read=20us..40us");
    let times: Vec<u64> = (0..10_000).map(|_| medium.draw(medium.spec.read)).collect();
    assert!(times.iter().all(|time| (20_000..=40_000).contains(time)));
    let below = times.iter().filter(|&&time| time < 25_000).count();
    assert!((2300..2700).contains(&below), "{below}");
    assert!(times.iter().any(|&time| time < 20_100) && times.iter().any(|&time| time > 39_900));
}

#[test]
fn normal_times_have_their_mean_and_deviation() {
    let medium = medium("read=100us~10us,write=1us~10us");
    let times: Vec<u64> = (0..10_000).map(|_| medium.draw(medium.spec.read)).collect();
    let mean = times.iter().sum::<u64>() / 10_000;
    assert!((99_500..100_500).contains(&mean), "{mean}");
    let squares: u64 = times.iter().map(|time| time.abs_diff(100_000).pow(2)).sum();
    let deviation = (squares / 10_000).isqrt();
    assert!((9_700..10_300).contains(&deviation), "{deviation}");
    // Below zero is zero.
    let writes: Vec<u64> = (0..100).map(|_| medium.draw(medium.spec.write)).collect();
    assert!(writes.contains(&0) && writes.iter().all(|&time| time <= 61_000));
}
