//! A real Linux judges the zones: null_blk as the state machine, dm-crypt over it as the cipher.
//!
//! ```text
//! one log of operations ─┬─► null_blk in the guest: dd and blkzone ─► error, report ─┐
//!                        └─► the emulation here                    ─► error, report ─┴─ equal, after each
//!
//! clear bytes ─► dm-crypt over null_blk ─► raw bytes ─┬─ equal
//! clear bytes ─► crypt over the emulation ─► raw bytes ┘     and the kernel decrypts ours
//!
//! in the guest, this program:  the same log ─┬─► null_blk, by the `file` base ─┐ errors, reports
//!                                            └─► the emulation                 ┴─ and blkzone's: equal
//! ```

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions};
use cryptline_engine::base::{DirectMode, Image, RamDevice, ZonedDevice};
use cryptline_engine::blocking::Blocking;
use cryptline_engine::layer::{CryptOptions, zoned};
use cryptline_engine::zone::ZoneLayout;
use cryptline_engine::{BackendChoice, Fault, Gate, Zone, ZoneAction, ZoneType};
use cryptline_testkit::oracle::{Oracle, Outcomes};
use cryptline_testkit::peer;
use rustix::io::Errno;

use super::Check;
use super::bench::Bench;

const MIB: u64 = 1 << 20;
const ZONE: u64 = 4 * MIB;
const ZONES: u32 = 16;
const BLOCK: u64 = 4096;
/// Two conventional zones, capacities below the zone size, and limits that are soon reached.
const NULL_BLK: &str = "\
modprobe null_blk nr_devices=0
[ -d /sys/kernel/config/nullb ] || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nullb
mkdir zoned && cd zoned
echo 64 >size; echo 4096 >blocksize; echo 1 >memory_backed; echo 1 >zoned
echo 4 >zone_size; echo 3 >zone_capacity; echo 2 >zone_nr_conv
echo 3 >zone_max_open; echo 4 >zone_max_active
echo 1 >power
dev=/dev/zoned; cd /tmp; [ -b $dev ]
";
const REMOVE: &str = "rmdir /sys/kernel/config/nullb/zoned";

fn layout() -> ZoneLayout {
    let mut layout = ZoneLayout::new(u64::from(ZONES) * ZONE, ZONE).unwrap();
    layout.capacity = 3 * MIB;
    layout.conventional = 2;
    (layout.max_open, layout.max_active) = (3, 4);
    layout.check().unwrap()
}

/// One line of the log.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many blocks from byte `at` on, one after the other.
    Write {
        at: u64,
        blocks: u64,
    },
    Act {
        zone: u32,
        action: ZoneAction,
    },
}

pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let Some(blkzone) = peer::require("blkzone") else {
        return Vec::new();
    };
    oracle.program(&blkzone);
    vec![emulation(oracle), ciphertext(bench, oracle), device_in_the_guest(oracle)]
}

fn emulation<'a>(oracle: &mut Oracle) -> Check<'a> {
    const NAME: &str = "zones and the emulation agree after each operation";
    let steps = steps();
    let mut script = NULL_BLK.to_owned();
    for step in &steps {
        let command = match step {
            Step::Write { at, blocks } => format!(
                "dd if=/dev/zero of=$dev bs={BLOCK} seek={} count={blocks} oflag=direct conv=notrunc",
                at / BLOCK
            ),
            Step::Act { zone, action } => {
                let zone = format!("-o {} -c 1 $dev", u64::from(*zone) * ZONE / 512);
                match action {
                    ZoneAction::Open => format!("blkzone open {zone}"),
                    ZoneAction::Close => format!("blkzone close {zone}"),
                    ZoneAction::Finish => format!("blkzone finish {zone}"),
                    ZoneAction::Reset => format!("blkzone reset {zone}"),
                    ZoneAction::ResetAll => "blkzone reset $dev".to_owned(),
                }
            }
        };
        let _ = writeln!(
            script,
            "if {command} 2>said; then echo '= ok'; else echo \"= $(grep -v records said | tail -n 1)\"; fi; blkzone report $dev"
        );
    }
    script.push_str(REMOVE);
    oracle.case(NAME).script(&script).timeout(Duration::from_secs(200));
    Check::new(NAME, move |outcomes| agrees_after_each(outcomes.passed(NAME), &steps))
}

fn agrees_after_each(said: &str, steps: &[Step]) {
    let answers: Vec<&str> = said.split("= ").skip(1).collect();
    assert_eq!(answers.len(), steps.len(), "{said}");
    let ram = Gate::new(RamDevice::new(layout().size()).unwrap());
    let device = Gate::new(ZonedDevice::in_memory(ram, layout()).unwrap());
    let mut disk = Blocking::new(&device, BackendChoice::Auto).unwrap();
    for (number, (step, answer)) in steps.iter().zip(answers).enumerate() {
        let (result, report) = answer.split_once('\n').unwrap();
        let ours = run(&mut disk, step);
        assert_eq!(
            ours.map_err(Fault::errno),
            error_of(result),
            "step {number}, {step:?}: we say {ours:?}, the kernel {result}"
        );
        let zones = report_of(&device);
        let theirs: Vec<_> = report.lines().filter_map(parse).collect();
        let ours: Vec<_> = zones.iter().map(fields).collect();
        assert_eq!(ours, theirs, "step {number}, {step:?}, {result}");
    }
}

fn run(disk: &mut Blocking, step: &Step) -> Result<(), Fault> {
    match *step {
        Step::Write { at, blocks } => {
            (0..blocks).try_for_each(|block| disk.write_at(at + block * BLOCK, &[0; 4096], false))
        }
        Step::Act { zone, action } => disk.zone(u64::from(zone) * ZONE, action),
    }
}

/// Every transition, then a few hundred that a fixed sequence of numbers chooses.
fn steps() -> Vec<Step> {
    use ZoneAction::{Close, Finish, Open, Reset, ResetAll};
    let act = |zone, action| Step::Act { zone, action };
    let write = |zone: u64, block: u64, blocks| Step::Write { at: zone * ZONE + block * BLOCK, blocks };
    let mut steps = vec![
        // Conventional zones are written anywhere and take no actions.
        write(0, 7, 2),
        act(1, Reset),
        act(1, Finish),
        act(1, Open),
        // Off the write pointer, at it, before it, behind it.
        write(2, 1, 1),
        write(2, 0, 3),
        write(2, 2, 1),
        write(2, 4, 1),
        // Up to the capacity, and past it.
        write(3, 0, 768),
        write(3, 768, 1),
        act(3, Open),
        act(3, Close),
        act(3, Finish),
        // Explicitly open zones are not closed for others.
        act(4, Open),
        act(5, Open),
        act(6, Open),
        act(7, Open),
        write(7, 0, 1),
        act(4, Close),
        write(7, 0, 1),
        act(5, Close),
        act(6, Finish),
        act(2, Close),
        // Implicitly open ones are; and no more than four are active.
        write(8, 0, 1),
        write(9, 0, 1),
        write(10, 0, 1),
        write(11, 0, 1),
        act(11, Open),
        act(12, Finish),
        act(2, Open),
        write(2, 3, 2),
        act(8, Reset),
        write(11, 0, 1),
        act(15, Finish),
        act(15, Reset),
        act(0, ResetAll),
    ];
    let mut state = 0x0123_4567_89ab_cdefu64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    // Few zones, so that they meet each other and the limits.
    for _ in 0..150 {
        let zone = 1 + random(8);
        let index = u32::try_from(zone).unwrap();
        steps.push(match random(10) {
            0..4 => write(zone, random(4), 1 + random(3)),
            4 => act(index, Open),
            5 => act(index, Close),
            6 => act(index, Finish),
            _ => act(index, Reset),
        });
    }
    steps
}

/// The error in what dd or blkzone said.
fn error_of(said: &str) -> Result<(), Errno> {
    let errors = [
        ("Input/output error", Errno::IO),
        ("I/O error", Errno::IO),
        ("Value too large", Errno::OVERFLOW),
        ("Too many references", Errno::TOOMANYREFS),
        ("Invalid argument", Errno::INVAL),
        ("not supported", Errno::OPNOTSUPP),
    ];
    match errors.iter().find(|(text, _)| said.contains(text)) {
        Some((_, errno)) => Err(*errno),
        None => {
            assert_eq!(said, "ok");
            Ok(())
        }
    }
}

/// Start, length, capacity, write pointer from the start, in sectors; condition, type.
type Fields = [u64; 6];

/// A line of blkzone: `start: 0x…, len 0x…, cap 0x…, wptr 0x… reset:0 non-seq:0, zcond: 1(em) [type: 2(…)]`.
fn parse(line: &str) -> Option<Fields> {
    let after = |name: &str| {
        let rest = line.split_once(name)?.1.trim_start();
        let (digits, radix) = match rest.strip_prefix("0x") {
            Some(digits) => (digits, 16),
            None => (rest, 10),
        };
        let end = digits.find(|c: char| !c.is_digit(radix))?;
        u64::from_str_radix(&digits[..end], radix).ok()
    };
    Some([after("start:")?, after("len ")?, after("cap ")?, after("wptr ")?, after("zcond:")?, after("type:")?])
}

fn fields(zone: &Zone) -> Fields {
    let sectors = |bytes: u64| bytes / 512;
    // blkzone shows no write pointer where there is none.
    let written = match zone.kind {
        ZoneType::Conventional => 0,
        _ => zone.write_pointer - zone.start,
    };
    [
        sectors(zone.start),
        sectors(zone.length),
        sectors(zone.capacity),
        sectors(written),
        u64::from(zone.condition.code()),
        u64::from(zone.kind.code()),
    ]
}

fn report_of(device: &Gate) -> Vec<Zone> {
    let mut zones = vec![Zone::default(); 16];
    let count = device.report_zones(0, &mut zones).unwrap();
    assert_eq!(count, zones.len());
    zones
}

/// Zone 4 is written by the kernel, zone 5 by us.
fn ciphertext<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
    const NAME: &str = "reads our encrypted zones and writes the same bytes";
    let blocks = 24u64;
    let clear: Vec<u8> =
        (0..blocks * BLOCK).map(|index| (index.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()[0]).collect();
    let ours = encrypted(&clear, &[4, 5]);
    let [plain, raw] = [("zones plain", &clear), ("zones raw", &ours[1])].map(|(name, bytes)| bench.file(name, bytes));
    let back = bench.image("zones back", clear.len());
    let key = base16ct::lower::encode_string(&(0..64).collect::<Vec<u8>>());
    let (fourth, fifth) = (4 * ZONE / BLOCK, 5 * ZONE / BLOCK);
    let script = format!(
        "{NULL_BLK}
        dd if=$raw of=$dev bs={BLOCK} seek={fifth} count={blocks} oflag=direct conv=notrunc
        echo \"0 $(blockdev --getsz $dev) crypt aes-xts-plain64 {key} 0 $dev 0 1 sector_size:4096\" | dmsetup create v
        dmsetup mknodes v
        dd if=$plain of=/dev/mapper/v bs={BLOCK} seek={fourth} count={blocks} oflag=direct conv=notrunc
        dd if=/dev/mapper/v bs={BLOCK} skip={fifth} count={blocks} | cmp - $plain
        dd if=$dev of=$back bs={BLOCK} skip={fourth} count={blocks} conv=fsync
        dmsetup remove v
        {REMOVE}
        echo same"
    );
    oracle.case(NAME).read_only_disk("plain", &plain).read_only_disk("raw", &raw).disk("back", &back).script(&script);
    Check::new(NAME, move |outcomes: &Outcomes| {
        assert!(outcomes.passed(NAME).ends_with("same"));
        let theirs = std::fs::read(&back).unwrap();
        assert!(theirs == ours[0], "dm-crypt wrote other bytes than we do");
    })
}

/// Returns what lies on emulated zones after `clear` was written to each of these, by appends and writes.
fn encrypted(clear: &[u8], zones: &[u64]) -> Vec<Vec<u8>> {
    let ram = Gate::new(RamDevice::new(layout().size()).unwrap());
    let device = Gate::new(ZonedDevice::in_memory(ram.clone(), layout()).unwrap());
    written_to(&device, &ram, clear, zones)
}

/// The same on any zoned device, whose bytes are read from `medium`.
fn written_to(device: &Gate, medium: &Gate, clear: &[u8], zones: &[u64]) -> Vec<Vec<u8>> {
    let spec = CipherSpec::parse("aes-xts-plain64").unwrap();
    let key: Vec<u8> = (0..64).collect();
    let options = SectorOptions { sector_size: 4096, iv_offset: 0, iv_large_sectors: false };
    let cipher = SectorCipher::new(&spec, &key, options).unwrap();
    let volume = zoned::encrypted(device.clone(), cipher, CryptOptions::default()).unwrap();
    let mut disk = Blocking::new(&volume, BackendChoice::Auto).unwrap();
    let mut below = Blocking::new(medium, BackendChoice::Auto).unwrap();
    let mut found = Vec::new();
    for zone in zones {
        let start = zone * ZONE;
        let (written, appended) = clear.split_at(8192);
        disk.write_at(start, written, false).unwrap();
        assert_eq!(disk.zone_append(start, appended, false), Ok(start + 8192));
        let mut bytes = vec![0; clear.len()];
        disk.read_at(start, &mut bytes).unwrap();
        assert!(bytes == clear, "it reads as it was written");
        below.read_at(start, &mut bytes).unwrap();
        found.push(bytes);
    }
    found
}

/// Where the part of a test that runs in the guest finds its device.
const DEVICE: &str = "CRYPTLINE_ZONED_DEVICE";

fn device_in_the_guest<'a>(oracle: &mut Oracle) -> Check<'a> {
    const NAME: &str = "device is reported and driven as the emulation is";
    let script = format!(
        "{NULL_BLK}
        export {DEVICE}=$dev
        in_the_guest --ignored --exact kernel_oracle::zoned::guest_zones_agree_after_each_operation
        blkzone reset $dev
        in_the_guest --ignored --exact kernel_oracle::zoned::guest_encrypted_zones_are_what_the_emulation_has
        {REMOVE}
        echo agreed"
    );
    oracle.case(NAME).script(&script).timeout(Duration::from_secs(200));
    Check::new(NAME, |outcomes: &Outcomes| {
        let said = outcomes.passed(NAME);
        assert_eq!(said.matches("test result: ok. 1 passed").count(), 2, "{said}");
        assert!(said.ends_with("agreed"), "{said}");
    })
}

/// The device of the guest, as `serve` and the rest open it.
fn device() -> Gate {
    let path = std::env::var(DEVICE).expect("a guest with a zoned device");
    let image = Image::open(Path::new(&path), false).unwrap();
    Gate::new(image.into_device(4096, DirectMode::On).unwrap())
}

#[test]
#[ignore = "runs in the guest only"]
fn guest_zones_agree_after_each_operation() {
    let real = device();
    let model = real.geometry().zones.expect("a zoned device");
    assert_eq!((model.zone_size, model.write_granularity), (ZONE, 4096));
    let ram = Gate::new(RamDevice::new(layout().size()).unwrap());
    let emulated = Gate::new(ZonedDevice::in_memory(ram, layout()).unwrap());
    for backend in [BackendChoice::Auto, BackendChoice::Syscalls] {
        let mut there = Blocking::new(&real, backend).unwrap();
        let mut here = Blocking::new(&emulated, backend).unwrap();
        for (number, step) in steps().iter().enumerate() {
            let (theirs, ours) = (run(&mut there, step), run(&mut here, step));
            assert_eq!(theirs.map_err(Fault::errno), ours.map_err(Fault::errno), "step {number}, {step:?}");
            let zones = report_of(&real);
            assert_eq!(zones, report_of(&emulated), "step {number}, {step:?}");
        }
        let blkzone =
            std::process::Command::new("blkzone").args(["report", &std::env::var(DEVICE).unwrap()]).output().unwrap();
        let text = String::from_utf8(blkzone.stdout).unwrap();
        let theirs: Vec<_> = text.lines().filter_map(parse).collect();
        assert_eq!(report_of(&real).iter().map(fields).collect::<Vec<_>>(), theirs);
        for disk in [&mut there, &mut here] {
            disk.zone(0, ZoneAction::ResetAll).unwrap();
        }
    }
}

#[test]
#[ignore = "runs in the guest only"]
fn guest_encrypted_zones_are_what_the_emulation_has() {
    let clear: Vec<u8> =
        (0..24 * BLOCK).map(|index| (index.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()[0]).collect();
    let zones = [4, 5];
    let real = device();
    assert!(written_to(&real, &real, &clear, &zones) == encrypted(&clear, &zones));
}
