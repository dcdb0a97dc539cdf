//! Shared memory: zeros, runs, and what threads make of them together.

use std::sync::Barrier as Meeting;

use super::*;

#[test]
fn cleared_bytes_read_as_zeros_and_neighbours_stay() {
    let page = crate::page_size();
    let memory = SharedMemory::new(8 * page).unwrap();
    memory.write(0, &vec![0xaa; 8 * page]);
    memory.clear(page - 100, 3 * page);
    let mut all = vec![0; 8 * page];
    memory.read(0, &mut all);
    let zeroed = page - 100..4 * page - 100;
    for (index, byte) in all.iter().enumerate() {
        assert_eq!(*byte == 0, zeroed.contains(&index), "byte {index}");
    }
}

#[test]
fn written_pages_are_known_and_forgotten() {
    let page = crate::page_size();
    for barrier in [Barrier::new(), Barrier::of_both()] {
        let memory = SharedMemory::with(100 * page, barrier).unwrap();
        memory.write(10 * page + 5, &[1]);
        assert_eq!(memory.run(0, 100 * page), (false, 10 * page));
        assert_eq!(memory.run(10 * page, 100 * page), (true, 11 * page));
        memory.store64(12 * page, 1);
        assert_eq!(memory.run(12 * page, 100 * page), (true, 13 * page));
        memory.clear(0, 100 * page);
        assert_eq!(memory.run(0, 100 * page), (false, 100 * page));
    }
}

/// Trims and writes of the same pages, over and over. What is there after both must be known.
#[test]
fn trim_that_meets_a_write_does_not_hide_what_was_written() {
    let page = crate::page_size();
    let (chunk, rounds) = (8 * page, 300);
    let whole = 256 * page;
    for barrier in [Barrier::new(), Barrier::of_both()] {
        let memory = SharedMemory::with(whole, barrier).unwrap();
        let meeting = Meeting::new(2);
        let hidden = std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    meeting.wait();
                    (0..3).for_each(|_| memory.clear(0, whole));
                    meeting.wait();
                }
            });
            let (data, mut back) = (vec![7; chunk], vec![0; page]);
            let mut hidden = 0;
            for _ in 0..rounds {
                meeting.wait();
                for at in (0..whole).step_by(chunk) {
                    memory.write(at, &data);
                }
                meeting.wait();
                for at in (0..whole).step_by(page) {
                    memory.read(at, &mut back);
                    hidden += usize::from(back.contains(&7) && !memory.run(at, whole).0);
                }
            }
            hidden
        });
        assert_eq!(hidden, 0, "pages of live data that are said to be holes");
    }
}

/// Overlapping reads and writes of many threads: bytes mix, and Miri sees no data race.
#[test]
fn overlapping_requests_of_threads_mix_bytes_and_no_more() {
    let (len, rounds) = if cfg!(miri) { (32, 3) } else { (4096, 1000) };
    let memory = &SharedMemory::new(2 * crate::page_size()).unwrap();
    std::thread::scope(|scope| {
        for byte in [1, 2] {
            scope.spawn(move || {
                let data = vec![byte; len];
                (0..rounds).for_each(|round| memory.write(round % 7, &data));
            });
        }
        scope.spawn(move || (0..rounds).for_each(|_| memory.clear(len / 2, len)));
        let mut seen = vec![9; len];
        for _ in 0..rounds {
            memory.read(3, &mut seen);
            assert!(seen.iter().all(|&byte| byte <= 2));
        }
    });
}

#[test]
#[should_panic(expected = "range outside RAM")]
fn a_range_past_the_end_is_refused() {
    SharedMemory::new(4096).unwrap().write(4095, &[0; 2]);
}
