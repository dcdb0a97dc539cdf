//! A driver that others wrote, libblkio's; ours reads what it wrote.

use cryptline_testkit::blkio::{Client, VirtioFeatureFlags, use_disk};

use super::*;

#[test]
fn libblkios_driver_and_ours_see_the_same_encrypted_disk() {
    for ring in [VirtioFeatureFlags::empty(), VirtioFeatureFlags::RING_EVENT_IDX] {
        for backend in BACKENDS {
            let over = stack::crypt_over_ram(SIZE);
            let size = over.gate.geometry().size;
            let len = usize::try_from(size).expect("small");
            let served = Served::over(over, backend);
            let clear = pattern(0, len, 11);
            let expected = use_disk(&served.socket, ring, &clear);
            let mut driver = served.driver();
            assert!(driver.run(&read(0, size)).2 == expected);
            // And back: what ours writes, theirs reads.
            let clear = pattern(0, len, 12);
            assert_eq!(driver.run(&write(0, &clear)).0, OK);
            drop(driver);
            let mut client = Client::connect(&served.socket, ring);
            assert!(client.read(len) == clear);
        }
    }
}
