//! A conventional zone is a disk like any other: the whole suite, plain and encrypted.

use cryptline_engine::base::RamDevice;
use cryptline_engine::base::ZonedDevice;
use cryptline_engine::dispatch::{Dispatch, DispatchMode, HelperThreads};
use cryptline_engine::layer::{CryptOptions, zoned};
use cryptline_engine::zone::ZoneLayout;
use cryptline_engine::{Gate, Geometry};
use cryptline_testkit::conformance;
use cryptline_testkit::suite::Fresh;
use cryptline_testkit::suite::devices::{self, Layout};

use crate::zoned::common::AES;

/// Bytes in a zone.
const ZONE: u64 = 4 << 20;

conformance! {
    crypt_over_a_conventional_zone [Discard, Hint] => || Some(crypt(512, DispatchMode::Inline));
    crypt_with_helpers_over_a_conventional_zone [Discard, Hint] => || Some(crypt(4096, DispatchMode::Auto));
}

/// The clear disk on the first of two zones.
fn crypt(sector_size: u32, mode: DispatchMode) -> Fresh {
    let mut layout = ZoneLayout::new(2 * ZONE, ZONE).unwrap();
    layout.conventional = 1;
    let memory = Gate::new(RamDevice::new(layout.size()).unwrap());
    let device = ZonedDevice::in_memory(memory, layout.check().unwrap()).unwrap();
    let options = CryptOptions {
        size: Some(ZONE),
        allow_discards: true,
        dispatch: Dispatch::both(mode),
        helpers: (mode == DispatchMode::Auto).then(|| HelperThreads::always(2).unwrap()),
        ..CryptOptions::default()
    };
    let cipher = devices::cipher(&Layout { sector_size, ..AES });
    let gate = zoned::encrypted(Gate::new(device), cipher, options).unwrap();
    let Geometry { size, zones, .. } = *gate.geometry();
    assert!(size == ZONE && zones.is_some());
    Fresh::new(gate)
}
