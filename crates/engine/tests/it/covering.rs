//! A covering array of devices, for whatever is asked of all of them.
//!
//! A device's ways depend on its layers, on how the base below them answers, on the sector, on which threads have the
//! cipher, and on how parts of sectors are kept apart:
//!
//! * each base once;
//! * each layer over each kind of base: `memory` answers at once, a `file` through the ring, `direct` with demands on
//!   memory and borders, `slow` later and in another order;
//! * crypt in whole sectors, XTS in blocks, CBC in blocks, and ranges of several keys: each over each kind and under each
//!   dispatch, and each kind under each dispatch (a Latin square); all kinds and dispatches at 512 bytes, and at 4096;
//! * both exclusions over each kind and under each dispatch; blocks of 512, 1024 and 2048;
//! * holes, the cipher that encrypts nothing, crypt over crypt, and each way to cut and join, once or more.

pub use cryptline_engine::layer::Exclusion;
pub use cryptline_testkit::suite::devices::{
    self, AES_512, AES_4096, AUTO, CBC_4096, INLINE, Layout, NULL, QUEUE, QUEUE_FLAGS, QUICK,
};

/// Ranges under XTS, in the clear and under CBC, and where they meet: at no large power of two.
pub const MIXED: [Option<&Layout>; 3] = [Some(&AES_512), None, Some(&CBC_4096)];
pub const BORDERS: [u64; 2] = [300 * 4096, 301 * 4096];
/// Bytes of a range that ends on no page's border.
pub const UNEVEN: u64 = 77 * 512;

/// Gives the devices, each with its abilities, to a macro.
macro_rules! covering_array {
    ($to:ident) => {
        $to! {
            // Bases.
            ram [Discard, Zeroes, Hint] => devices::ram;
            file_buffered [Discard, Zeroes] => devices::file_buffered;
            file_direct [Discard, Zeroes] => devices::file_direct;
            pmem [] => devices::pmem;
            btt_512_in_memory [] => || devices::btt_in_memory(512);
            btt_4096_in_file [] => || devices::btt_in_file(4096);

            // Delays and faults.
            delay_over_ram [Discard, Zeroes, Hint] => || Some(devices::delayed(devices::ram()?, QUICK));
            fault_over_delay_of_nothing_over_file [Discard, Zeroes] =>
                || Some(devices::faultless(devices::delayed(devices::file_buffered()?, "read=0")));
            fault_over_delay_over_direct_file [Discard, Zeroes] =>
                || Some(devices::faultless(devices::delayed(devices::file_direct()?, QUICK)));

            // Ranges in turns, swapped, and cut off.
            linear_of_ram_and_file [Discard, Zeroes] => || {
                let (one, other) = (devices::ram()?, devices::file_buffered()?);
                Some(devices::in_turns(vec![one, other], UNEVEN))
            };
            linear_of_a_file_with_its_halves_swapped [Discard, Zeroes] =>
                || Some(devices::swapped(devices::file_buffered()?, 1_234_944));
            slice_of_a_direct_file [Discard, Zeroes] =>
                || Some(devices::sliced(devices::file_direct_4096()?, 4096, 8192));
            cbc_in_512_over_linear_of_delayed_rams [Discard, Hint] => || {
                let slow = || Some(devices::delayed(devices::ram()?, QUICK));
                let lower = devices::in_turns(vec![slow()?, slow()?], UNEVEN);
                Some(devices::in_blocks(lower, &CBC_4096, 512, Exclusion::Shared, INLINE))
            };

            // Crypt in whole sectors.
            aes_512_over_pmem [] => || Some(devices::crypt(devices::pmem()?, &AES_512));
            aes_512_under_queue_over_file [Discard] =>
                || Some(devices::dispatched(devices::file_buffered()?, &AES_512, QUEUE));
            aes_512_under_queue_with_flags_over_direct_file [Discard] =>
                || Some(devices::dispatched(devices::file_direct()?, &AES_512, QUEUE_FLAGS));
            aes_512_with_helpers_over_delay_over_ram [Discard, Hint] =>
                || Some(devices::dispatched(devices::delayed(devices::ram()?, QUICK), &AES_512, AUTO));
            aes_4096_with_helpers_over_aes_512_under_queue_over_file_in_memory [Discard] => || {
                let lower = devices::dispatched(devices::file_in_memory()?, &AES_512, QUEUE);
                Some(devices::dispatched(lower, &AES_4096, AUTO))
            };
            aes_4096_with_holes_over_fault_over_ram [Discard, Zeroes, Hint] =>
                || Some(devices::sparse(devices::faultless(devices::ram()?), &AES_4096));
            cbc_with_holes_over_file [Discard, Zeroes] =>
                || Some(devices::sparse(devices::file_buffered()?, &CBC_4096));
            null_over_direct_file [Discard, Zeroes] => || Some(devices::crypt(devices::file_direct()?, &NULL));

            // XTS in blocks smaller than its sectors.
            xts_in_512_under_queue_over_ram [Discard, Hint] =>
                || Some(devices::in_blocks(devices::ram()?, &AES_4096, 512, Exclusion::Shared, QUEUE));
            xts_in_512_exclusive_over_file [Discard] =>
                || Some(devices::in_blocks(devices::file_buffered()?, &AES_4096, 512, Exclusion::Exclusive, INLINE));
            xts_in_512_exclusive_with_helpers_over_direct_file [Discard] =>
                || Some(devices::in_blocks(devices::file_direct_4096()?, &AES_4096, 512, Exclusion::Exclusive, AUTO));
            xts_in_1024_under_queue_with_flags_over_delay_over_ram [Discard, Hint] => || {
                let lower = devices::delayed(devices::ram()?, QUICK);
                Some(devices::in_blocks(lower, &AES_4096, 1024, Exclusion::Shared, QUEUE_FLAGS))
            };

            // CBC in blocks smaller than its sectors.
            cbc_in_512_exclusive_under_queue_with_flags_over_ram [Discard, Hint] =>
                || Some(devices::in_blocks(devices::ram()?, &CBC_4096, 512, Exclusion::Exclusive, QUEUE_FLAGS));
            cbc_in_512_with_helpers_over_file [Discard] =>
                || Some(devices::in_blocks(devices::file_buffered()?, &CBC_4096, 512, Exclusion::Shared, AUTO));
            cbc_in_2048_over_direct_file [Discard] =>
                || Some(devices::in_blocks(devices::file_direct()?, &CBC_4096, 2048, Exclusion::Shared, INLINE));
            cbc_in_512_exclusive_under_queue_over_delay_over_ram [Discard, Hint] => || {
                let lower = devices::delayed(devices::ram()?, QUICK);
                Some(devices::in_blocks(lower, &CBC_4096, 512, Exclusion::Exclusive, QUEUE))
            };

            // Ranges of several keys, and in the clear.
            two_keys_with_helpers_over_linear_of_one_ram [Discard, Hint] =>
                || Some(devices::two_keys(devices::ram()?, 1_234_944, AUTO));
            keys_and_a_clear_range_under_queue_with_flags_over_linear_of_one_file [Discard] =>
                || Some(devices::in_ranges(devices::file_buffered()?, &BORDERS, &MIXED, QUEUE_FLAGS));
            two_keys_under_queue_over_linear_of_one_direct_file [Discard] =>
                || Some(devices::two_keys(devices::file_direct()?, 1 << 20, QUEUE));
            keys_and_a_clear_range_over_linear_of_delay_over_ram [Discard, Hint] => || {
                let slow = devices::delayed(devices::ram()?, QUICK);
                Some(devices::in_ranges(slow, &BORDERS, &MIXED, INLINE))
            };
        }
    };
}

pub(crate) use covering_array;
