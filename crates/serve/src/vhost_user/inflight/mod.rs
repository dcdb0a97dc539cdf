//! Requests under way, in memory that outlives the server: a front-end keeps it and gives it to the next one.
//!
//! Each layout is the vhost-user protocol's for one kind of virtqueue. A server that is killed between any two stores
//! leaves a state from which the next one serves exactly the requests whose end was not published.
//!
//! A request is marked before it is served and unmarked after it is published. The next server works out which batch
//! was published and not yet noted: for a split ring from the difference of two indices, for a packed one from the
//! first used element, which is stored last. Used elements of a packed ring overwrite descriptors of requests that are
//! not over, so the buffer has copies, and elements of an unpublished batch are taken back before anything else is
//! served. Requests under way are in no order, so a stopped queue does all of them first. `queue/kill_tests.rs` kills a
//! server before every store, and the next one before every store of its own.

mod packed;
mod split;

pub(super) use self::packed::{LeftRequest, PackedInflight};
pub(super) use self::split::SplitInflight;

const VERSION: u16 = 1;
const VERSION_AT: usize = 8;
const COUNT_AT: usize = 10;
/// Each queue's part begins at a multiple of this.
const ALIGNMENT: usize = 64;

/// Bytes that one queue of `size` descriptors takes.
pub(super) fn size_of_queue(size: u16, is_packed: bool) -> usize {
    let bytes = if is_packed { packed::entry(size) } else { split::entry(size) };
    bytes.next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_lie_side_by_side() {
        assert_eq!(size_of_queue(1, false), 64);
        assert_eq!(size_of_queue(128, false), 2112);
        assert_eq!(size_of_queue(1, true), 64);
        assert_eq!(size_of_queue(128, true), 4160);
        for size in [1, 3, 128, 32768] {
            for is_packed in [false, true] {
                assert!(size_of_queue(size, is_packed).is_multiple_of(ALIGNMENT));
            }
            assert!(size_of_queue(size, false) >= split::entry(size));
            assert!(size_of_queue(size, true) >= packed::entry(size));
        }
    }
}
