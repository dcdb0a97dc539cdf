//! The conformance suite: what every device promises, checked on any device.
//!
//! ```text
//! conformance! {
//!     ram [Discard, Zeroes, Hint] => devices::ram;
//!     crypt_over_file [Discard, Hint] => || devices::crypt(devices::file_buffered()?, &AES_512);
//! }
//! ```
//!
//! makes one test for each device and promise, those of its abilities among them: what a device does not offer
//! makes no test. One test holds the list to the device, so that none is missing either. Each runs on a fresh
//! device over every [`Setup`]: io_uring, io_uring with registered memory, and plain system calls.
//!
//! The promises are in [`checks`], the driver that speaks to a queue in [`Driver`], ready-made
//! devices in [`devices`].

pub mod checks;
pub mod devices;
mod driver;

use std::any::Any;
use std::sync::mpsc;
use std::time::Duration;

use cryptline_engine::{BackendChoice, Gate, Geometry};

pub use driver::Driver;

/// How a check reaches the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Which engine carries the I/O.
    pub backend: BackendChoice,
    /// Set if the buffers are registered with the ring.
    pub registered: bool,
}

impl Setup {
    /// io_uring where the kernel lets us, with and without registered memory, and system calls.
    pub const ALL: [Self; 3] = [
        Self { backend: BackendChoice::Auto, registered: false },
        Self { backend: BackendChoice::Auto, registered: true },
        Self { backend: BackendChoice::Syscalls, registered: false },
    ];
}

/// Feature that a device may offer or not, in its [`Geometry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Discards.
    Discard,
    /// Writes of zeros.
    Zeroes,
    /// Hints that a range will be read soon.
    Hint,
}

impl Ability {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Discard, Self::Zeroes, Self::Hint];

    /// Tells if a device has it.
    #[must_use]
    pub fn is_of(self, geometry: &Geometry) -> bool {
        match self {
            Self::Discard => geometry.discard,
            Self::Zeroes => geometry.write_zeroes,
            Self::Hint => geometry.cache,
        }
    }
}

/// A device made for one check, with what must live as long (its temporary files).
pub struct Fresh {
    /// The device.
    pub gate: Gate,
    /// Dropped after the device.
    pub keep: Vec<Box<dyn Any>>,
}

impl Fresh {
    /// A device that needs nothing else.
    #[must_use]
    pub fn new(gate: Gate) -> Self {
        Self { gate, keep: Vec::new() }
    }
}

/// Runs one check over every setup, on a fresh device each. A `make` that answers `None` has said
/// why this machine has no such device, and the check is skipped.
pub fn run(make: impl Fn() -> Option<Fresh>, check: impl Fn(&Fresh, Setup)) {
    let _watchdog = Watchdog::start(Duration::from_secs(120));
    for setup in Setup::ALL {
        let Some(fresh) = make() else { return };
        // Shown only for a check that fails.
        println!("over {setup:?}");
        check(&fresh, setup);
    }
}

/// Ends the process where a check does not end: a hang must be a failure, not a stuck machine.
pub struct Watchdog {
    _alive: mpsc::Sender<()>,
}

impl Watchdog {
    /// Allows `limit` until the value is dropped.
    #[must_use]
    pub fn start(limit: Duration) -> Self {
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        let (alive, ended) = mpsc::channel();
        std::thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{name} hangs: no end after {limit:?}");
                std::process::exit(101);
            }
        });
        Self { _alive: alive }
    }
}

/// A word of noise that depends on all bits of `seed` (SplitMix64, Steele et al. 2014).
#[must_use]
pub fn noise(seed: u64) -> u64 {
    let mut word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Fills `data`, to be written at `offset`, with bytes that belong to this place and `seed` only:
/// data at a wrong place, or from an older write, is seen.
pub fn fill(data: &mut [u8], offset: u64, seed: u64) {
    for (index, chunk) in data.chunks_mut(8).enumerate() {
        let word = noise(seed.rotate_left(32) ^ (offset + index as u64 * 8));
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

/// Makes a module for each device, with one test for each promise of [`checks`] that a device of its abilities makes.
#[macro_export]
macro_rules! conformance {
    ($($device:ident [$($ability:ident),*] => $make:expr;)+) => { $(
        mod $device {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance! { @abilities [$($ability),*] $make }
            $crate::conformance! { @checks $make,
                what_is_written_is_read_back_at_every_alignment_and_size
                last_block_is_written_and_nothing_after_it
                durable_write_is_read_back
                flush_succeeds_with_and_without_writes
                range_past_the_end_is_refused
                offset_that_overflows_is_refused
                misaligned_request_is_refused
                empty_request_is_refused
                refused_request_changes_nothing_and_latches_nothing
                extents_cover_the_device_and_hide_no_data
                deep_queue_completes_each_request_once
                queues_of_two_threads_see_each_others_completed_writes
                neighbouring_blocks_written_by_two_threads_at_once_all_arrive
                dropping_a_queue_with_requests_in_flight_harms_nobody
            }
        }
    )+ };
    (@abilities [$($ability:ident),*] $make:expr) => {
        #[test]
        fn it_offers_what_is_listed_and_refuses_the_rest() {
            let listed = [$($crate::suite::Ability::$ability),*];
            $crate::suite::run($make, |fresh, setup| {
                $crate::suite::checks::it_offers_what_is_listed_and_refuses_the_rest(fresh, setup, &listed);
            });
        }
        $($crate::conformance! { @ability $ability $make })*
    };
    (@ability Discard $make:expr) => {
        $crate::conformance! { @checks $make, discarded_range_leaves_its_neighbours_alone }
    };
    (@ability Zeroes $make:expr) => {
        $crate::conformance! { @checks $make, zeroed_range_reads_as_zeros_and_leaves_its_neighbours_alone }
    };
    (@ability Hint $make:expr) => {
        $crate::conformance! { @checks $make, hint_ends_well_and_changes_nothing }
    };
    (@checks $make:expr, $($check:ident)+) => { $(
        #[test]
        fn $check() {
            $crate::suite::run($make, $crate::suite::checks::$check);
        }
    )+ };
}
