//! The conformance suite over every device: bases, layers, and layers over layers.

use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::{Gate, GatedQueue};
use cryptline_testkit::conformance;
use cryptline_testkit::suite::{self, Driver, Fresh, Setup, checks};

use crate::covering::*;

covering_array!(conformance);

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
