//! Block translation tables: `nd_btt` attaches ours and we open the kernel's, with dm-crypt over both.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cryptline_testkit::oracle::{Oracle, Outcomes, pattern};
use cryptline_testkit::peer;

use super::Check;
use super::bench::{Bench, Opening, Patch, assert_same, sha256, text};

/// Bytes of the clear disk.
const CLEAR_BYTES: usize = 512 << 10;
const UUID: &str = "11111111-2222-3333-4444-555555555555";

/// One table. Its image's size tells it from the others in the guest.
struct Table {
    name: &'static str,
    sector_size: u32,
    mebibytes: usize,
    we_make_it: bool,
}

const TABLES: [Table; 4] = [
    Table { name: "BTT of 512-byte sectors by cryptline", sector_size: 512, mebibytes: 32, we_make_it: true },
    Table { name: "BTT of 4096-byte sectors by cryptline", sector_size: 4096, mebibytes: 64, we_make_it: true },
    Table { name: "BTT of 512-byte sectors by Linux", sector_size: 512, mebibytes: 48, we_make_it: false },
    Table { name: "BTT of 4096-byte sectors by Linux", sector_size: 4096, mebibytes: 80, we_make_it: false },
];

/// Finds the region of `$size` bytes as `$n`.
const FIND: &str = r#"
for module in virtio_pmem nd_pmem nd_btt; do modprobe $module; done
nd=/sys/bus/nd
n=
for region in $nd/devices/region*; do
    if [ "$(cat $region/size)" = "$size" ]; then n=${region##*region}; fi
done
[ -n "$n" ]
"#;

/// Script by which ndctl makes a table.
const MAKE: &str = r"
echo namespace$n.0 > $nd/drivers/nd_pmem/unbind
echo $sector_size > $nd/devices/btt$n.0/sector_size
echo $uuid > $nd/devices/btt$n.0/uuid
echo namespace$n.0 > $nd/devices/btt$n.0/namespace
echo btt$n.0 > $nd/drivers/nd_pmem/bind
";

/// The sector size, what we wrote, and then other bytes.
const EXCHANGE: &str = r"
disk=/dev/pmem${n}s
for _ in 1 2 3 4 5 6 7 8 9 10; do [ -b $disk ] || sleep 1; done
blockdev --getss $disk
open() {
    cryptsetup open --type plain --cipher aes-xts-plain64 --key-size 512 \
        --sector-size $sector_size --key-file $key $disk v
}
open
head -c $length /dev/mapper/v | sha256sum
head -c $length $news > /dev/mapper/v
sync
cryptsetup close v
";

/// Asks the guest to read, to write and to make tables.
pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    TABLES.iter().map(|table| table.exchange(bench, oracle)).collect()
}

impl Table {
    fn exchange<'a>(&'static self, bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
        let image = bench.image(self.name, self.mebibytes << 20);
        let written = pattern::bytes(u64::from(self.sector_size), CLEAR_BYTES);
        if self.we_make_it {
            let sector_size = self.sector_size.to_string();
            let _ = program(&["create", "--force", "--sector-size", &sector_size, text(&image)]);
            bench.write(&self.opening(bench, &image), &written, &[]);
            assert_parsed_by_pmdk(&image, self.sector_size);
        }
        oracle.persistent_memory(&image);
        let (size, sector_size) = (self.mebibytes << 20, self.sector_size);
        let case = oracle.case(self.name).read_only_disk("news", &bench.news).file("key", key());
        case.timeout(Duration::from_secs(180));
        case.script(&format!("size={size} sector_size={sector_size} uuid={UUID} length={CLEAR_BYTES}"));
        case.script(FIND);
        if !self.we_make_it {
            case.script(MAKE);
        }
        case.script(EXCHANGE);
        Check::new(self.name, move |outcomes| self.verify(bench, outcomes, &image, &written))
    }

    fn opening(&self, bench: &Bench, image: &Path) -> Opening {
        let target = format!("btt:{}", text(image));
        let sector_size = format!("--sector-size={}", self.sector_size);
        let length = format!("--size={}", CLEAR_BYTES / 512);
        Opening::new([
            &target,
            "--type=plain",
            "--cipher=aes-xts-plain64",
            "--key-size=512",
            "--hash=sha256",
            &sector_size,
            &length,
            "--key-file",
            text(&bench.file("table key", &key())),
        ])
    }

    fn verify(&self, bench: &Bench, outcomes: &Outcomes, image: &Path, written: &[u8]) {
        let said = outcomes.passed(self.name);
        let mut lines = said.lines();
        assert_eq!(lines.next(), Some(self.sector_size.to_string().as_str()));
        if self.we_make_it {
            let sum = format!("{}  -", sha256(written));
            assert_eq!(lines.next(), Some(sum.as_str()), "what the kernel read");
        } else {
            let info = program(&["info", "--json", text(image)]);
            assert!(info.contains(UUID) && info.contains("\"1.1\""), "{info}");
            let sector_size = format!("\"sector_size\": {}", self.sector_size);
            assert!(info.contains(&sector_size), "{info}");
        }
        let _ = program(&["check", text(image)]);
        assert_parsed_by_pmdk(image, self.sector_size);
        let opening = self.opening(bench, image);
        let mut news = pattern::bytes(77, CLEAR_BYTES);
        assert_same(&bench.read(&opening), &news, "what the kernel wrote");
        // And the table goes on working under us.
        let patch = Patch { offset: 8192, length: 12288, byte: 0xa5 };
        bench.write(&opening, &news, &[patch]);
        news[8192..][..12288].fill(0xa5);
        assert_same(&bench.read(&opening), &news, "what we wrote then");
        let _ = program(&["check", text(image)]);
    }
}

/// A key file that is the key itself.
fn key() -> Vec<u8> {
    pattern::bytes(3, 64)
}

/// `cryptline btt` with these arguments, which must succeed; what it printed.
fn program(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cryptline"));
    command.arg("btt").args(arguments);
    peer::run(&mut command, Duration::from_secs(60)).success().stdout_text()
}

/// PMDK finds the same table at the same place.
fn assert_parsed_by_pmdk(image: &Path, sector_size: u32) {
    let Some(pmempool) = peer::require("pmempool") else {
        return;
    };
    let run = pmempool.run(["info", "-f", "btt", text(image)]).success();
    let said = run.stdout_text();
    let field = |name: &str| {
        let line = said.lines().find(|line| line.trim_start().starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or_else(|| panic!("no {name} in {said}"), |(_, value)| value.trim().to_owned())
    };
    assert_eq!(field("Signature"), "BTT_ARENA_INFO", "{said}");
    assert_eq!(field("External LBA size"), sector_size.to_string(), "{said}");
    assert!(field("Checksum").contains("OK"), "{said}");
}
