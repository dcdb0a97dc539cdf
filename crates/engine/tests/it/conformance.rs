//! The conformance suite over every device: bases, layers, and layers over layers.

use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::layer::Exclusion;
use cryptline_engine::{Gate, GatedQueue};
use cryptline_testkit::conformance;
use cryptline_testkit::suite::devices::{
    self, AES_512, AES_4096, AUTO, CBC_4096, INLINE, Layout, NULL, QUEUE, QUEUE_FLAGS, QUICK,
};
use cryptline_testkit::suite::{self, Driver, Fresh, Setup, checks};

conformance! {
    ram => devices::ram;
    file_buffered => devices::file_buffered;
    file_direct => devices::file_direct;
    file_direct_in_4096 => devices::file_direct_4096;
    pmem => devices::pmem;
    btt_512_in_memory => || devices::btt_in_memory(512);
    btt_4096_in_memory => || devices::btt_in_memory(4096);
    btt_4096_in_file => || devices::btt_in_file(4096);
    fault_over_ram => || devices::ram().map(devices::faultless);
    fault_over_file => || devices::file_buffered().map(devices::faultless);
    delay_over_ram => || Some(devices::delayed(devices::ram()?, QUICK));
    delay_over_file => || Some(devices::delayed(devices::file_buffered()?, QUICK));
    delay_over_direct_file => || Some(devices::delayed(devices::file_direct()?, QUICK));
    delay_of_nothing_over_ram => || Some(devices::delayed(devices::ram()?, "read=0"));
    aes_512_over_delay_over_ram =>
        || Some(devices::crypt(devices::delayed(devices::ram()?, QUICK), &AES_512));
    aes_4096_over_fault_over_delay_over_file => || {
        let slow = devices::delayed(devices::file_buffered()?, QUICK);
        Some(devices::crypt(devices::faultless(slow), &AES_4096))
    };
    aes_512_over_ram => || Some(devices::crypt(devices::ram()?, &AES_512));
    aes_512_over_file => || Some(devices::crypt(devices::file_buffered()?, &AES_512));
    aes_512_over_file_in_memory => || Some(devices::crypt(devices::file_in_memory()?, &AES_512));
    aes_512_over_direct_file => || Some(devices::crypt(devices::file_direct()?, &AES_512));
    aes_4096_over_ram => || Some(devices::crypt(devices::ram()?, &AES_4096));
    aes_4096_over_file => || Some(devices::crypt(devices::file_buffered()?, &AES_4096));
    aes_4096_over_direct_file => || Some(devices::crypt(devices::file_direct_4096()?, &AES_4096));
    queue_over_ram => || Some(devices::dispatched(devices::ram()?, &AES_512, QUEUE));
    queue_over_file => || Some(devices::dispatched(devices::file_buffered()?, &AES_512, QUEUE));
    queue_with_flags_over_direct_file =>
        || Some(devices::dispatched(devices::file_direct()?, &AES_512, QUEUE_FLAGS));
    auto_over_ram => || Some(devices::dispatched(devices::ram()?, &AES_512, AUTO));
    auto_over_file => || Some(devices::dispatched(devices::file_buffered()?, &AES_512, AUTO));
    auto_over_file_in_memory =>
        || Some(devices::dispatched(devices::file_in_memory()?, &AES_512, AUTO));
    auto_over_direct_file =>
        || Some(devices::dispatched(devices::file_direct_4096()?, &AES_4096, AUTO));
    auto_over_queue_over_ram => || {
        let lower = devices::dispatched(devices::ram()?, &AES_512, QUEUE);
        Some(devices::dispatched(lower, &AES_4096, AUTO))
    };
    xts_in_512_of_4096_over_ram => || {
        Some(devices::in_blocks(devices::ram()?, &AES_4096, 512, Exclusion::Shared, INLINE))
    };
    xts_in_1024_of_4096_over_delay_over_ram => || {
        let lower = devices::delayed(devices::ram()?, QUICK);
        Some(devices::in_blocks(lower, &AES_4096, 1024, Exclusion::Shared, INLINE))
    };
    xts_in_512_of_4096_over_direct_file => || {
        Some(devices::in_blocks(devices::file_direct()?, &AES_4096, 512, Exclusion::Shared, AUTO))
    };
    xts_in_512_of_4096_over_direct_file_of_4096 => || {
        Some(devices::in_blocks(devices::file_direct_4096()?, &AES_4096, 512, Exclusion::Shared, INLINE))
    };
    xts_in_512_of_4096_exclusive_over_delay_over_ram => || {
        let lower = devices::delayed(devices::ram()?, QUICK);
        Some(devices::in_blocks(lower, &AES_4096, 512, Exclusion::Exclusive, INLINE))
    };
    cbc_in_512_of_4096_over_ram => || {
        Some(devices::in_blocks(devices::ram()?, &CBC_4096, 512, Exclusion::Shared, INLINE))
    };
    cbc_in_512_of_4096_over_delay_over_ram => || {
        let lower = devices::delayed(devices::ram()?, QUICK);
        Some(devices::in_blocks(lower, &CBC_4096, 512, Exclusion::Shared, INLINE))
    };
    cbc_in_512_of_4096_exclusive_over_delay_over_ram => || {
        let lower = devices::delayed(devices::ram()?, QUICK);
        Some(devices::in_blocks(lower, &CBC_4096, 512, Exclusion::Exclusive, INLINE))
    };
    cbc_in_512_of_4096_over_file => || {
        Some(devices::in_blocks(devices::file_buffered()?, &CBC_4096, 512, Exclusion::Shared, AUTO))
    };
    cbc_in_2048_of_4096_under_queue_over_direct_file => || {
        Some(devices::in_blocks(devices::file_direct()?, &CBC_4096, 2048, Exclusion::Shared, QUEUE))
    };
    xts_with_holes_over_ram => || Some(devices::sparse(devices::ram()?, &AES_4096));
    cbc_with_holes_over_file => || Some(devices::sparse(devices::file_buffered()?, &CBC_4096));
    null_over_ram => || Some(devices::crypt(devices::ram()?, &NULL));
    null_over_file => || Some(devices::crypt(devices::file_buffered()?, &NULL));
    null_over_direct_file => || Some(devices::crypt(devices::file_direct()?, &NULL));
    aes_512_over_pmem => || Some(devices::crypt(devices::pmem()?, &AES_512));
    aes_512_over_btt_512 => || Some(devices::crypt(devices::btt_in_memory(512)?, &AES_512));
    aes_4096_over_btt_4096 => || Some(devices::crypt(devices::btt_in_memory(4096)?, &AES_4096));
    aes_4096_over_aes_512_over_ram =>
        || Some(devices::crypt(devices::crypt(devices::ram()?, &AES_512), &AES_4096));
    linear_of_two_rams => || {
        let (one, other) = (devices::ram()?, devices::ram()?);
        Some(devices::in_turns(vec![one, other], UNEVEN))
    };
    linear_of_a_ram_with_its_halves_swapped => || Some(devices::swapped(devices::ram()?, 1 << 20));
    linear_of_a_file_with_its_halves_swapped =>
        || Some(devices::swapped(devices::file_buffered()?, 1_234_944));
    slice_of_a_ram => || Some(devices::sliced(devices::ram()?, 77 * 512, 512));
    slice_of_a_file => || Some(devices::sliced(devices::file_buffered()?, 512, 63 * 512));
    slice_of_a_direct_file => || Some(devices::sliced(devices::file_direct_4096()?, 4096, 8192));
    slice_of_delay_over_ram => || {
        Some(devices::sliced(devices::delayed(devices::ram()?, QUICK), 4096, 512))
    };
    slice_of_aes_512_over_file =>
        || Some(devices::sliced(devices::crypt(devices::file_buffered()?, &AES_512), 512, 512));
    aes_4096_over_slice_of_file => || {
        Some(devices::crypt(devices::sliced(devices::file_buffered()?, 512, 7 * 512), &AES_4096))
    };
    linear_of_two_files => || {
        let (one, other) = (devices::file_buffered()?, devices::file_buffered()?);
        Some(devices::in_turns(vec![one, other], UNEVEN))
    };
    linear_of_two_direct_files => || {
        let (one, other) = (devices::file_direct_4096()?, devices::file_direct_4096()?);
        Some(devices::in_turns(vec![one, other], 5 * 4096))
    };
    linear_of_ram_and_file => || {
        let (one, other) = (devices::ram()?, devices::file_buffered()?);
        Some(devices::in_turns(vec![one, other], UNEVEN))
    };
    linear_of_delayed_rams => || {
        let slow = || Some(devices::delayed(devices::ram()?, QUICK));
        Some(devices::in_turns(vec![slow()?, slow()?, devices::ram()?], UNEVEN))
    };
    linear_of_two_keys_over_files => || {
        let one = devices::crypt(devices::file_buffered()?, &AES_512);
        let other = devices::crypt(devices::file_buffered()?, &AES_4096);
        Some(devices::in_turns(vec![one, other], 5 * 4096))
    };
    two_keys_over_linear_of_one_file =>
        || Some(devices::two_keys(devices::file_buffered()?, 1_234_944, INLINE));
    two_keys_over_linear_of_one_direct_file =>
        || Some(devices::two_keys(devices::file_direct()?, 1 << 20, AUTO));
    two_keys_under_queue_over_linear_of_one_file =>
        || Some(devices::two_keys(devices::file_buffered()?, 1_234_944, QUEUE));
    two_keys_over_linear_of_delay_over_ram => || {
        let slow = devices::delayed(devices::ram()?, QUICK);
        Some(devices::two_keys(slow, 1_234_944, INLINE))
    };
    two_keys_with_helpers_over_linear_of_one_ram =>
        || Some(devices::two_keys(devices::ram()?, 1_234_944, AUTO));
    two_keys_over_linear_of_one_ram =>
        || Some(devices::two_keys(devices::ram()?, 1_234_944, INLINE));
    keys_and_a_clear_range_over_linear_of_one_ram =>
        || Some(devices::in_ranges(devices::ram()?, &BORDERS, &MIXED, INLINE));
    keys_and_a_clear_range_with_helpers_over_linear_of_one_file =>
        || Some(devices::in_ranges(devices::file_buffered()?, &BORDERS, &MIXED, AUTO));
    keys_and_a_clear_range_under_queue_over_linear_of_one_file =>
        || Some(devices::in_ranges(devices::file_buffered()?, &BORDERS, &MIXED, QUEUE));
    aes_512_over_linear_of_two_files => || {
        let (one, other) = (devices::file_buffered()?, devices::file_buffered()?);
        Some(devices::crypt(devices::in_turns(vec![one, other], UNEVEN), &AES_512))
    };
    cbc_in_512_over_linear_of_delayed_rams => || {
        let slow = || Some(devices::delayed(devices::ram()?, QUICK));
        let lower = devices::in_turns(vec![slow()?, slow()?], UNEVEN);
        Some(devices::in_blocks(lower, &CBC_4096, 512, Exclusion::Shared, INLINE))
    };
}

/// Ranges under XTS, in the clear and under CBC, and where they meet: at no large power of two.
const MIXED: [Option<&Layout>; 3] = [Some(&AES_512), None, Some(&CBC_4096)];
const BORDERS: [u64; 2] = [300 * 4096, 301 * 4096];
/// Bytes of a range that ends on no page's border.
const UNEVEN: u64 = 77 * 512;

fn read_only_file(direct: DirectMode) -> Option<Fresh> {
    let (path, folder) = devices::image_file();
    let data: Vec<u8> = (0..devices::SIZE / 8).flat_map(|word| suite::noise(word).to_le_bytes()).collect();
    std::fs::write(&path, data).unwrap();
    let device = Image::open(&path, true).unwrap().into_device(512, direct);
    let mut fresh = Fresh::new(Gate::new(device.unwrap()));
    fresh.keep.push(Box::new(folder));
    Some(fresh)
}

#[test]
fn read_only_file_refuses_every_change() {
    for direct in [DirectMode::Auto, DirectMode::Off] {
        suite::run(|| read_only_file(direct), checks::read_only_device_refuses_every_change);
    }
}

#[test]
fn crypt_over_a_read_only_file_refuses_every_change() {
    suite::run(
        || Some(devices::crypt(read_only_file(DirectMode::Auto)?, &AES_512)),
        checks::read_only_device_refuses_every_change,
    );
}

#[test]
fn ciphertext_lies_where_the_layout_says_and_nowhere_else() {
    for (layout, setup) in [AES_512, AES_4096, NULL].into_iter().zip(Setup::ALL) {
        let (path, _folder) = devices::image_file();
        let image = Image::open(&path, false).unwrap();
        let file = image.into_device(512, DirectMode::Off).unwrap();
        let fresh = devices::crypt(Fresh::new(Gate::new(file)), &layout);
        let mut driver = Driver::new(&fresh.gate, setup);
        driver.fill_device(5);
        let start = usize::try_from(layout.start).unwrap();
        let stored = std::fs::read(&path).unwrap();
        assert!(stored[..start].iter().all(|&byte| byte == 0));
        let mut expected = stored[start..].to_vec();
        suite::fill(&mut expected, 0, 5);
        // The cipher itself is judged against the standard and the kernel in its own crate.
        let cipher = devices::cipher(&layout);
        cipher.encrypt_in_place(0, &mut expected);
        assert!(stored[start..] == expected, "{layout:?}");
    }
}

#[test]
fn gate_can_be_shared_by_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Gate>();
    let _: fn(&GatedQueue) -> usize = GatedQueue::in_flight;
}
