//! Zoned devices to test, plain and encrypted.

use cryptline_engine::base::{DirectMode, RamDevice, ZoneOptions, ZonedDevice, ZonedFile};
use cryptline_engine::dispatch::{Dispatch, DispatchMode, HelperThreads};
use cryptline_engine::layer::{CryptOptions, DelayDevice, zoned};
use cryptline_engine::zone::ZoneLayout;
use cryptline_engine::{Gate, Zone};
use cryptline_testkit::suite::Fresh;
use cryptline_testkit::suite::devices::{self, Layout};
use tempfile::TempDir;

pub const K: u64 = 1024;
pub const ZONE: u64 = 1024 * K;
pub const CAPACITY: u64 = 768 * K;
pub const ZONES: u32 = 8;
pub const CONVENTIONAL: u32 = 2;
/// Slow, and requests end in another order than they began.
pub const SLOW: &str = "read=5us..50us,write=20us..200us,flush=100us,parallel=8,seed=5";

/// AES-256-XTS from the first byte on.
pub const AES: Layout = Layout { cipher: "aes-xts-plain64", key_bytes: 64, sector_size: 4096, start: 0, iv_offset: 0 };

pub fn layout() -> ZoneLayout {
    let mut layout = ZoneLayout::new(u64::from(ZONES) * ZONE, ZONE).unwrap();
    layout.capacity = CAPACITY;
    layout.conventional = CONVENTIONAL;
    layout.check().unwrap()
}

/// Zones in memory that answer at once.
pub fn ram(layout: ZoneLayout) -> Fresh {
    let ram = Gate::new(RamDevice::new(layout.size()).unwrap());
    Fresh::new(Gate::new(ZonedDevice::in_memory(ram, layout).unwrap()))
}

/// Zones in memory that take their time.
pub fn slow(layout: ZoneLayout) -> Fresh {
    let lower = ram(layout);
    let device = DelayDevice::new(lower.gate, SLOW.parse().unwrap());
    Fresh::new(Gate::new(device))
}

/// Zones in memory over a slow disk: a write is under way until it is written.
pub fn over_slow(layout: ZoneLayout) -> Fresh {
    let ram = Gate::new(RamDevice::new(layout.size()).unwrap());
    let disk = Gate::new(DelayDevice::new(ram, SLOW.parse().unwrap()));
    Fresh::new(Gate::new(ZonedDevice::in_memory(disk, layout).unwrap()))
}

/// Zones in a file, through the page cache.
pub fn file() -> Fresh {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk");
    let new = std::fs::File::create(&path).unwrap();
    new.set_len(u64::from(ZONES) * ZONE).unwrap();
    let opened = ZonedFile::open(&path, &options(), false, DirectMode::Off).unwrap();
    Fresh { gate: Gate::new(opened.device), keep: vec![Box::new(folder)] }
}

pub fn options() -> ZoneOptions {
    ZoneOptions {
        zone_size: Some(ZONE),
        capacity: Some(CAPACITY),
        conventional: Some(CONVENTIONAL),
        ..ZoneOptions::default()
    }
}

/// The clear disk over `lower`.
pub fn encrypted(lower: Fresh, mode: DispatchMode) -> Fresh {
    let options = CryptOptions {
        dispatch: Dispatch::both(mode),
        helpers: (mode == DispatchMode::Auto).then(|| HelperThreads::always(2).unwrap()),
        ..CryptOptions::default()
    };
    Fresh { gate: zoned::encrypted(lower.gate, devices::cipher(&AES), options).unwrap(), keep: lower.keep }
}

pub fn report(gate: &Gate) -> Vec<Zone> {
    let mut zones = [Zone::default(); ZONES as usize + 1];
    let count = gate.report_zones(0, &mut zones).unwrap();
    zones[..count].to_vec()
}

/// The zone's number as the start of it.
pub fn start(index: u32) -> u64 {
    u64::from(index) * ZONE
}
