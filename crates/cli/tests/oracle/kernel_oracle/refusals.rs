//! Input that both refuse, in the same words where the kernel has words.

use std::time::Duration;

use cryptline_testkit::oracle::{Oracle, Outcomes, pattern};

use super::Check;
use super::bench::{Bench, Opening, hex, text};

/// `KEY` is a good key of 64 bytes, `KEY32` one of 32 bytes, `DISK` a disk of [`DISK_SECTORS`].
///
/// Numbers of more than 64 bits are not among them: the kernel cuts them, we refuse them. And
/// `integrity:16` without a profile is not among them: Linux 6.1 dies of it (a null pointer in
/// `crypt_ctr_optional`).
const BAD_LINES: &[&str] = &[
    // dm's own checks.
    "0 0 crypt aes-xts-plain64 KEY 0 DISK 0",
    "8 8 crypt aes-xts-plain64 KEY 0 DISK 0",
    "0 8 nosuchtarget aes-xts-plain64 KEY 0 DISK 0",
    // Arguments.
    "0 8 crypt",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK",
    // Keys.
    "0 8 crypt aes-xts-plain64 :64 0 DISK 0",
    "0 8 crypt aes-xts-plain64 :x:logon:name 0 DISK 0",
    "0 8 crypt aes-xts-plain64 :64:nosuch:name 0 DISK 0",
    "0 8 crypt aes-xts-plain64 :64:logon: 0 DISK 0",
    "0 8 crypt aes-xts-plain64 - 0 DISK 0",
    "0 8 crypt aes-xts-plain64 KEYff 0 DISK 0",
    "0 8 crypt aes-xts-plain64 00112233 0 DISK 0",
    "0 8 crypt aes-xts-plain64 xyzKEY 0 DISK 0",
    "0 8 crypt cipher_null-ecb 00 0 DISK 0",
    // Options.
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 x",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 -1",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 2 allow_discards",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 99 allow_discards",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 1 nonsense",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 1 allow_discards:1",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 1 sector_size",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 1 sector_size:",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 1 sector_size:x",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 1 sector_size:0",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 1 sector_size:256",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 1 sector_size:513",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 1 sector_size:8192",
    "0 9 crypt aes-xts-plain64 KEY 0 DISK 0 1 sector_size:4096",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 1 integrity:0:aead",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 1 integrity:481:aead",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 1 integrity:16:nosuch",
    // Ciphers.
    "0 8 crypt aes-xts-plain64 KEY 0 DISK 0 1 integrity:16:aead",
    "0 8 crypt xts(aes)-plain64 KEY 0 DISK 0",
    "0 8 crypt aes:3-xts-plain64 KEY 0 DISK 0",
    "0 8 crypt aes:x-xts-plain64 KEY 0 DISK 0",
    "0 8 crypt aes:0-xts-plain64 KEY 0 DISK 0",
    "0 8 crypt aes-xts KEY 0 DISK 0",
    "0 8 crypt aes-cbc-essiv KEY 0 DISK 0",
    "0 8 crypt capi:cbc(aes)-essiv KEY 0 DISK 0",
    "0 8 crypt nosuch-xts-plain64 KEY 0 DISK 0",
    "0 8 crypt aes-nosuch-plain64 KEY 0 DISK 0",
    "0 8 crypt aes-xts-nosuch KEY 0 DISK 0",
    "0 8 crypt capi:nosuch(aes)-plain64 KEY 0 DISK 0",
    "0 8 crypt capi:xts(aes)-nosuch KEY 0 DISK 0",
    // Parts that do not go together.
    "0 8 crypt aes-cbc-essiv:sha512 KEY32 0 DISK 0",
    "0 8 crypt aes-cbc-essiv:sha1 KEY32 0 DISK 0",
    "0 8 crypt aes-cbc-essiv:nosuch KEY32 0 DISK 0",
    "0 8 crypt aes-ecb-essiv:sha256 KEY32 0 DISK 0",
    "0 8 crypt xchacha12,aes-adiantum-essiv:sha256 KEY32 0 DISK 0",
    "0 8 crypt xchacha12,aes-adiantum-eboiv KEY32 0 DISK 0",
    "0 8 crypt xchacha12,aes-adiantum-plain64 KEY 0 DISK 0",
    "0 8 crypt aes-adiantum-plain64 KEY32 0 DISK 0",
    "0 8 crypt xchacha12,aes-xts-plain64 KEY 0 DISK 0",
    "0 8 crypt aes-ctr-eboiv KEY32 0 DISK 0",
    "0 8 crypt aes-ctr-elephant KEY32 0 DISK 0",
    "0 8 crypt aes-cbc-random KEY32 0 DISK 0",
    "0 8 crypt aes-cbc-tcw KEY64 0 DISK 0 1 sector_size:4096",
    "0 8 crypt aes-cbc-tcw KEY32 0 DISK 0",
    "0 8 crypt aes-cbc-elephant KEY16 0 DISK 0",
    "0 8 crypt aes:64-cbc-lmk KEY1024 0 DISK 0 1 sector_size:4096",
    "0 8 crypt aes:64-cbc-lmk KEY64 0 DISK 0",
    "0 8 crypt aes:2-cbc-plain64 KEY16 0 DISK 0",
    "0 8 crypt aes-lrw-benbi KEY64 0 DISK 0",
    "0 8 crypt twofish-cbc-plain64 KEY64 0 DISK 0",
    // IVs and places.
    "0 8 crypt aes-xts-plain64 KEY x DISK 0",
    "0 8 crypt aes-xts-plain64 KEY -1 DISK 0",
    "0 8 crypt aes-xts-plain64 KEY 1 DISK 0 1 sector_size:4096",
    "0 8 crypt aes-xts-plain64 KEY 4 DISK 0 2 sector_size:4096 iv_large_sectors",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK x",
    "0 8 crypt aes-xts-plain64 KEY 0 DISK -1",
    // Two mistakes: the kernel's order of checks.
    "0 8 crypt aes-xts-nosuch 0011 x DISK x 1 nonsense",
    "0 8 crypt aes-xts-nosuch 0011 x DISK x",
    "0 8 crypt aes-xts-plain64 0011 x DISK x",
    "0 8 crypt aes-xts-plain64 KEY x DISK x",
];

/// The kernel takes these; we say that we do not yet.
const NOT_YET: &[(&str, usize)] =
    &[("capi:essiv(cbc(aes),sha256)-plain", 32), ("blowfish-cbc-plain64", 16), ("des3_ede-cbc-plain64", 24)];

const DISK_SECTORS: usize = 64;

/// Bad lines, lines for later, and volumes that do not fit their disks.
pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let mut checks = bad_lines(bench, oracle);
    checks.push(words_of_our_own(bench, oracle));
    checks.push(not_yet(bench, oracle));
    checks.push(too_small(bench, oracle));
    checks.push(half_a_sector(bench, oracle));
    checks.push(wrong_passphrase(bench, oracle));
    checks
}

/// Both refuse, with the same words.
fn bad_lines<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let lines: Vec<String> = BAD_LINES.iter().map(|line| with_key(line)).collect();
    ask_about_lines(bench, oracle, "bad lines", &lines);
    let check = |(index, line): (usize, &String)| {
        let ours = bench.cryptline("table", &Opening::new(["--table", line]), &[]);
        Check::new(format!("refused: {}", BAD_LINES[index]), move |outcomes| {
            let said = answers(outcomes, "bad lines");
            let Answer { taken, words } = &said[index];
            assert!(!taken, "the kernel takes it");
            let ours = ours.exited_with(1).stderr_text();
            let ours = ours.strip_prefix("cryptline: --table: ").expect("our words");
            let ours = ours.split(" (").next().unwrap_or_default();
            assert_eq!(ours.trim_end(), *words);
        })
    };
    lines.iter().enumerate().map(check).collect()
}

/// We take these words, and print them as others; the kernel does not know them.
fn words_of_our_own<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
    let line = format!("0 8 crypt aes-xts-plain64 {} 0 DISK 0 1 force_inline", key(64));
    ask_about_lines(bench, oracle, "words of our own", std::slice::from_ref(&line));
    let ours = bench.table(&Opening::new(["--table", &line]), &[]);
    Check::new("words of our own", move |outcomes| {
        let [Answer { taken, words }] = &answers(outcomes, "words of our own")[..] else {
            panic!("one answer to one line")
        };
        assert_eq!((*taken, *words), (false, "Invalid feature arguments"));
        assert!(ours.ends_with(" 2 no_read_workqueue no_write_workqueue"), "{ours}");
    })
}

/// The kernel takes every line; we say that it is right but not for us.
fn not_yet<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
    let line = |(cipher, bytes): &(&str, usize)| format!("0 8 crypt {cipher} {} 0 DISK 0", key(*bytes));
    let lines: Vec<String> = NOT_YET.iter().map(line).collect();
    ask_about_lines(bench, oracle, "lines for later", &lines);
    let table = |line: &String| bench.cryptline("table", &Opening::new(["--table", line]), &[]);
    let ours: Vec<_> = lines.iter().map(table).collect();
    Check::new("not supported yet", move |outcomes| {
        let said = answers(outcomes, "lines for later");
        let mut wrong = Vec::new();
        for ((ours, theirs), (cipher, _)) in ours.into_iter().zip(said).zip(NOT_YET) {
            if !theirs.taken {
                wrong.push(format!("{cipher}: {}", theirs.words));
            }
            let ours = ours.exited_with(1).stderr_text();
            if !ours.contains("not supported yet: cipher ") {
                wrong.push(format!("{cipher}: {ours}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    })
}

/// Reply of the kernel to a line.
struct Answer<'a> {
    taken: bool,
    words: &'a str,
}

/// Loads all lines in one case, each without the others.
fn ask_about_lines(bench: &Bench, oracle: &mut Oracle, name: &str, lines: &[String]) {
    let disk = bench.image(name, DISK_SECTORS * 512);
    let case = oracle.case(name).disk("disk", &disk).timeout(Duration::from_secs(120));
    for line in lines {
        let line = line.replace("DISK", "$disk");
        case.script(&format!(
            "if dmsetup create v --table \"{line}\"; then echo taken; dmsetup remove v; else echo refused; fi
             dmesg -c | grep 'device-mapper: table: ' | head -n 1
             echo --"
        ));
    }
}

/// The answers in the order of the lines.
fn answers<'a>(outcomes: &'a Outcomes, name: &str) -> Vec<Answer<'a>> {
    let said = outcomes.passed(name).trim_end_matches("--").split("--\n");
    let answer = |said: &'a str| Answer { taken: said.starts_with("taken"), words: kernel_words(said) };
    said.map(answer).collect()
}

/// A table whose end lies one sector behind the device's.
fn too_small<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
    let disk = bench.image("too small", DISK_SECTORS * 512);
    let line = format!("0 {} crypt aes-xts-plain64 {} 0", DISK_SECTORS - 7, key(64));
    let name = "refused: a table longer than its device";
    oracle.case(name).disk("disk", &disk).script(&format!("! dmsetup create v --table \"{line} $disk 8\""));
    let line = format!("{line} {} 8", text(&disk));
    let opening = Opening::new(["--table", &line, "--run", "true"]);
    let ours = bench.cryptline("serve", &opening, &[]);
    Check::new(name, move |outcomes| {
        outcomes.passed(name);
        let _ = ours.exited_with(4);
    })
}

/// A LUKS2 volume of 4096-byte sectors on a disk that ends within one: cryptsetup refuses it, we serve the
/// whole sectors.
fn half_a_sector<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
    let whole = (16 << 20) + 8192;
    let disk = bench.image("half a sector", whole);
    bench.cryptsetup(
        "luksFormat -q --type luks2 --sector-size 4096 --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
        &["--key-file", text(&bench.key), text(&disk)],
    );
    let bytes = std::fs::read(&disk).expect("the image");
    std::fs::write(&disk, [&bytes[..], &[0; 512]].concat()).expect("a longer image");
    let name = "a disk that ends within a cipher sector";
    oracle
        .case(name)
        .disk("disk", &disk)
        .file("key", std::fs::read(&bench.key).expect("the passphrase"))
        .script("! cryptsetup open --key-file $key $disk v");
    let opening = Opening::new([text(&disk), "--key-file", text(&bench.key)]);
    Check::new(name, move |outcomes| {
        outcomes.passed(name);
        assert_eq!(bench.read(&opening).len(), 8192);
    })
}

/// The same exit code.
fn wrong_passphrase<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
    let disk = bench.path("wrong passphrase");
    let create = Opening::new([text(&disk), "--size", "17M", "--key-file", text(&bench.key)])
        .with("--pbkdf pbkdf2 --pbkdf-force-iterations 1000".split(' '));
    let _ = bench.cryptline("create", &create, &[]).success();
    let name = "refused: a wrong passphrase";
    oracle
        .case(name)
        .disk("disk", &disk)
        .file("wrong", "wrong")
        .script("status=0; cryptsetup open --key-file $wrong $disk v || status=$?; echo $status");
    let wrong = bench.file("wrong", b"wrong");
    let opening = Opening::new([text(&disk), "--key-file", text(&wrong), "--check"]);
    let ours = bench.cryptline("open", &opening, &[]);
    Check::new(name, move |outcomes| {
        assert_eq!(outcomes.passed(name), "2");
        let _ = ours.exited_with(2);
    })
}

/// `line` with a key in place of `KEY` or of `KEY` and its size in bytes.
fn with_key(line: &str) -> String {
    let Some((before, rest)) = line.split_once("KEY") else {
        return line.to_owned();
    };
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let size = &rest[..rest.len() - after.len()];
    let bytes = if size.is_empty() { 64 } else { size.parse().expect("a size") };
    format!("{before}{}{after}", key(bytes))
}

/// A key of different halves.
fn key(bytes: usize) -> String {
    hex(&pattern::bytes(9, bytes))
}

/// `Invalid IV mode` of `device-mapper: table: 254:0: crypt: Invalid IV mode (-EINVAL)`.
fn kernel_words(log: &str) -> &str {
    let words = log.trim_end().rsplit(": ").next().unwrap_or_default();
    words.split(" (-E").next().unwrap_or_default()
}
