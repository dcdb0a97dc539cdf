//! Where lseek(2) finds data and holes.

use std::sync::{Arc, Mutex};

use cryptline_engine::{Device, Extent, Fault, Geometry, OpenError, Queue, Ring, Traits};

use super::*;

/// A disk of which each byte of `map` stands for 4096: data, or a hole that reads as zeros or does not.
struct Holes {
    map: &'static [u8],
    asked: Arc<Mutex<usize>>,
}

impl Device for Holes {
    fn traits(&self) -> Traits {
        Traits::base(Geometry::plain(self.map.len() as u64 * 4096, 512))
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        unreachable!("nothing is read")
    }

    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        *self.asked.lock().unwrap() += 1;
        let index = usize::try_from(offset / 4096).unwrap();
        Ok(Extent {
            len: (4096 - offset % 4096).min(len),
            hole: self.map[index] != b'd',
            zero: self.map[index] == b'0',
        })
    }
}

fn holes(map: &'static [u8]) -> (Gate, Arc<Mutex<usize>>) {
    let asked = Arc::default();
    let device = Holes { map, asked: Arc::clone(&asked) };
    (Gate::new(device), asked)
}

#[test]
fn only_what_reads_as_zeros_is_a_hole() {
    let (gate, _) = holes(b"d00nd0");
    let data = |at| seek(&gate, at, SEEK_DATA);
    let hole = |at| seek(&gate, at, SEEK_HOLE);
    assert_eq!((data(0), hole(0)), (Ok(0), Ok(4096)));
    assert_eq!((data(5000), hole(5000)), (Ok(3 * 4096), Ok(5000)));
    assert_eq!((data(4 * 4096), hole(3 * 4096)), (Ok(4 * 4096), Ok(5 * 4096)));
    assert_eq!((data(5 * 4096), hole(6 * 4096 - 1)), (Err(Errno::NXIO), Ok(6 * 4096 - 1)));
    assert_eq!((data(6 * 4096), hole(6 * 4096)), (Err(Errno::NXIO), Err(Errno::NXIO)));
    assert_eq!(seek(&gate, 0, 0), Err(Errno::INVAL));
    let (gate, _) = holes(b"dd");
    assert_eq!(seek(&gate, 1, SEEK_HOLE), Ok(8192), "behind the end");
}

#[test]
fn search_that_takes_long_ends_with_the_answer_that_is_never_wrong() {
    let (gate, asked) = holes(&[b'd'; 1000]);
    assert_eq!(seek(&gate, 0, SEEK_HOLE), Ok(1000 * 4096));
    assert_eq!(*asked.lock().unwrap(), EXTENTS_MAX);
    let (gate, _) = holes(&[b'0'; 1000]);
    assert_eq!(seek(&gate, 0, SEEK_DATA), Ok(EXTENTS_MAX as u64 * 4096));
}
