//! Encrypted zones under fio, which knows zones and writes each from its start on.
//!
//! NBD has no zones, so zoned volumes are not served; here a device between hides them from the server, as
//! fio keeps to their rules by itself (`--zonemode=zbd`). What comes out of order, or to the wrong place,
//! fails there: zones take a write at their write pointer only.

use std::time::Duration;

use cryptline_engine::base::{RamDevice, ZonedDevice};
use cryptline_engine::dispatch::Dispatch;
use cryptline_engine::layer::{CryptOptions, DelayDevice, zoned};
use cryptline_engine::zone::{Zone, ZoneCondition, ZoneLayout};
use cryptline_engine::{
    Device, Extent, Fault, Gate, GatedQueue, Geometry, OpenError, Queue, Request, Ring, Submitted, Traits,
};
use cryptline_testkit::peer;
use cryptline_testkit::suite::Fresh;
use cryptline_testkit::suite::devices::{self, AES_4096, Layout};

use crate::common::{Setup, stack};

const MIB: u64 = 1 << 20;
const ZONE: u64 = 4 * MIB;
const CAPACITY: u64 = 3 * MIB;
const ZONES: u64 = 8;

/// A zoned device that looks like one without zones.
struct Hidden(Gate);

struct HiddenQueue(GatedQueue);

impl Device for Hidden {
    fn traits(&self) -> Traits {
        Traits::base(Geometry { zones: None, discard: false, write_zeroes: false, ..*self.0.geometry() })
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(HiddenQueue(self.0.open_queue(ring)?)))
    }

    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        self.0.extent(offset, len)
    }
}

impl Queue for HiddenQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        self.0.submit(ring, request)
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<cryptline_engine::Completion>) {
        self.0.poll(ring, done);
    }
}

/// Encrypted zones over RAM that takes its time.
fn encrypted(dispatch: Dispatch) -> Gate {
    let mut layout = ZoneLayout::new(ZONES * ZONE, ZONE).unwrap();
    layout.capacity = CAPACITY;
    let ram = Gate::new(RamDevice::new(layout.size()).unwrap());
    let zones = Gate::new(ZonedDevice::in_memory(ram, layout.check().unwrap()).unwrap());
    let slow = "read=5us..50us,write=20us~10us,parallel=4".parse().unwrap();
    let medium = Gate::new(DelayDevice::new(zones, slow));
    let layout = Layout { start: 0, ..AES_4096 };
    let options = CryptOptions { dispatch, ..CryptOptions::default() };
    zoned::encrypted(medium, devices::cipher(&layout), options).unwrap()
}

#[test]
fn fio_fills_encrypted_zones_in_order_and_verifies_them() {
    let Some(fio) = peer::require("fio") else { return };
    for dispatch in stack::DISPATCHES {
        for (how, size) in [("write", "64k"), ("randwrite", "4k")] {
            let volume = encrypted(dispatch);
            let served = Setup::new(Fresh::new(Gate::new(Hidden(volume.clone())))).start();
            let uri = format!("--uri={}", served.uri());
            let mut command = fio.command();
            command.current_dir(served.folder()).args([
                "--name=zones",
                "--ioengine=nbd",
                &uri,
                "--zonemode=zbd",
                &format!("--zonesize={ZONE}"),
                &format!("--zonecapacity={CAPACITY}"),
                &format!("--size={}", ZONES * ZONE),
                // All zones to their ends, and none twice.
                &format!("--io_size={}", ZONES * CAPACITY),
                "--max_open_zones=4",
                &format!("--rw={how}"),
                &format!("--bs={size}"),
                "--iodepth=16",
                "--verify=crc32c",
                "--verify_fatal=1",
            ]);
            let run = peer::run(&mut command, Duration::from_secs(120)).success();
            let text = run.stdout_text();
            assert!(text.contains("READ:") && text.contains("WRITE:"), "{run}");
            assert!(!run.stderr_text().contains("verify:"), "{run}");
            drop(served);
            let mut report = vec![Zone::default(); 8];
            assert_eq!(volume.report_zones(0, &mut report), Ok(8));
            let full = |zone: &Zone| zone.condition == ZoneCondition::Full;
            assert!(report.iter().all(full), "{how} {dispatch:?}: {report:?}");
        }
    }
}
