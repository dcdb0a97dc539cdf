//! The kernel oracle itself is trusted by every other case, so it is asked first: dm-crypt is real, its
//! output is written where we look, and a failing case says so.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cryptline_testkit::oracle::{Oracle, Outcomes, golden, pattern};

use super::Check;
use super::bench::{Bench, hex};

const VOLUME_SECTORS: usize = 2048;
const VOLUME_BYTES: usize = VOLUME_SECTORS * 512;
/// Space that the tables below leave free at the start of a disk.
const GAP_BYTES: usize = 8 * 512;
/// The ciphertexts that the ciphers' own tests compare with.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cipher/tests/data/kernel-golden.txt");

/// Name, table options and disk image of a volume.
type Layout = (&'static str, &'static str, PathBuf);

pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    vec![real_volumes(bench, oracle), what_a_case_said(bench, oracle), golden_ciphertexts(bench, oracle)]
}

fn real_volumes<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
    let plaintext = pattern::bytes(7, VOLUME_BYTES);
    let plain = bench.file("plain", &plaintext);
    let key = hex(&pattern::bytes(8, 64));
    let layouts: [Layout; 2] = [("512", ""), ("4096", " 1 sector_size:4096")].map(|(name, options)| {
        let disk = bench.image(&format!("real {name}"), VOLUME_BYTES + GAP_BYTES);
        (name, options, disk)
    });
    for (name, options, disk) in &layouts {
        let table = format!("0 {VOLUME_SECTORS} crypt aes-xts-plain64 {key} 24 $disk 8{options}");
        let case = oracle.case(*name).disk("disk", disk).read_only_disk("plain", &plain);
        case.script(&format!("dmsetup create v --table \"{table}\""));
        case.script("dd if=$plain of=/dev/mapper/v bs=64k conv=fsync");
        case.script("echo 3 > /proc/sys/vm/drop_caches; cmp $plain /dev/mapper/v");
        case.script("dmsetup table --showkeys v; blockdev --getss /dev/mapper/v");
    }
    Check::new("oracle writes and reads real dm-crypt volumes", move |outcomes| {
        are_real(outcomes, &layouts, &key, &plaintext);
    })
}

fn are_real(outcomes: &Outcomes, layouts: &[Layout], key: &str, plaintext: &[u8]) {
    for (name, options, disk) in layouts {
        let said = outcomes.passed(name);
        let (table, block_size) = said.split_once('\n').expect("two lines");
        let (head, tail) = table.split_once(" 24 ").expect("an IV offset");
        assert_eq!(head, format!("0 {VOLUME_SECTORS} crypt aes-xts-plain64 {key}"));
        assert!(tail.ends_with(&format!(" 8{options}")), "{table}");
        assert_eq!(block_size, *name);

        let written = std::fs::read(disk).expect("the guest's disk");
        let (before, ciphertext) = written.split_at(GAP_BYTES);
        assert!(before.iter().all(|&byte| byte == 0), "the kernel wrote before its offset");
        let same = plaintext.chunks(16).zip(ciphertext.chunks(16)).filter(|(a, b)| a == b);
        assert_eq!(same.count(), 0, "plaintext on the disk");
    }
}

/// Ciphers that the kernel has as modules of their own.
const OF_MODULES: [&str; 2] = ["aes-cbc-essiv:sha256", "serpent-xts-plain64"];

fn what_a_case_said<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
    let shared = bench.folder().join("shared, with a comma");
    std::fs::write(&shared, vec![0; 20 << 20]).expect("an image");
    let fixed = bench.file("fixed", &[1; 4096]);
    oracle.case("luks").disk("luks", &shared).file("key", "a secret").script(
        "cryptsetup luksFormat -q --pbkdf argon2id --pbkdf-force-iterations 4 --pbkdf-memory 1024 \
             --pbkdf-parallel 1 --key-file $key $luks
         cryptsetup open --key-file $key $luks v
         mkfs.ext4 -q /dev/mapper/v
         mount /dev/mapper/v /mnt; echo hello > /mnt/file; cat /mnt/file",
    );
    let key = hex(&pattern::bytes(8, 64));
    oracle.case("refusal").disk("disk", &shared).read_only_disk("fixed", &fixed).script(&format!(
        "[ ! -e /dev/mapper/v ]
         ! dmsetup create v --table \"0 8 crypt aes-xts-plain64 {key} 1 $disk 0 1 sector_size:4096\"
         ! dd if=/dev/zero of=$fixed bs=512 count=1
         echo said; echo complained >&2; exit 5"
    ));
    for cipher in OF_MODULES {
        oracle.case(cipher).disk("disk", &shared).script(&format!(
            "dmsetup create v --table \"0 8 crypt {cipher} {} 0 $disk 0\"; dmsetup table v",
            "00".repeat(32)
        ));
    }
    oracle.case("late").timeout(Duration::from_secs(1)).script("echo started; sleep 100");
    oracle.case("after").script("echo alive");
    Check::new("oracle reports what a case said and how it ended", move |outcomes| {
        is_reported(outcomes, &shared, &fixed);
    })
}

fn is_reported(outcomes: &Outcomes, shared: &Path, fixed: &Path) {
    assert_eq!(outcomes.passed("luks"), "hello");
    let header = std::fs::read(shared).expect("the guest's disk");
    assert_eq!(header[..8], *b"LUKS\xba\xbe\x00\x02");

    let refusal = outcomes.of("refusal");
    assert_eq!((refusal.status, refusal.stdout.trim_end()), (5, "said"), "{refusal}");
    assert!(refusal.stderr.contains("complained"), "{refusal}");
    assert!(refusal.kernel_log.contains("crypt: Invalid iv_offset sector"), "{refusal}");
    assert_eq!(std::fs::read(fixed).expect("still there"), [1; 4096]);

    for cipher in OF_MODULES {
        assert!(outcomes.passed(cipher).starts_with(&format!("0 8 crypt {cipher} ")));
    }
    let late = outcomes.of("late");
    assert_eq!((late.status, late.stdout.trim_end()), (137, "started"), "{late}");
    assert_eq!(outcomes.passed("after"), "alive");
}

fn golden_ciphertexts<'a>(bench: &Bench, oracle: &mut Oracle) -> Check<'a> {
    let asked = golden::ask(oracle, bench.folder());
    Check::new("oracle makes the golden ciphertexts again", move |outcomes| {
        let committed = std::fs::read_to_string(GOLDEN).expect("the golden file");
        assert!(asked.text(outcomes) == committed, "the head of {GOLDEN} says how it is written again");
    })
}

#[test]
#[ignore = "writes a committed file again"]
fn kernel_oracle_writes_the_golden_ciphertexts() {
    let oracle = Oracle::new().expect("a kernel to ask");
    std::fs::write(GOLDEN, golden::generate(oracle)).expect("written");
}
