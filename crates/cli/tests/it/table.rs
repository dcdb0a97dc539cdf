//! `table`, and tables, plain volumes and RAM as targets.

use std::fs;

use crate::common::*;

const ZEROS: &str = concat!(
    "00000000000000000000000000000000",
    "00000000000000000000000000000000",
    "00000000000000000000000000000000",
    "00000000000000000000000000000000",
);
/// `cryptsetup plain` makes this of the passphrase `xxx` with sha256 (its own test suite).
const PLAIN_KEY: &str = "cd2eb0837c9b4c962c22d2ff8b5441b7b45805887f051d39bf133b583baf6860";
const PLAIN: [&str; 5] =
    ["--type=plain", "--cipher=aes-xts-plain64", "--key-size=256", "--hash=sha256", "--key-file=-"];

#[test]
fn a_luks_volume_is_shown_in_the_kernels_form_with_its_key_hidden() {
    let folder = Folder::new();
    let image = folder.luks2();
    let line = cryptline(["table".as_ref(), image.as_path()]).success().stdout_text();
    let path = image.display();
    let expected = format!("0 8192 crypt aes-xts-plain64 {ZEROS} 0 {path} 32768 1 sector_size:4096\n");
    assert_eq!(line, expected);
    let image = folder.luks1();
    let line = folder.run(&["table"], &image, &["--allow-discards"]).success().stdout_text();
    let path = image.display();
    let expected = format!("0 36864 crypt aes-xts-plain64 {ZEROS} 0 {path} 4096 1 allow_discards\n");
    assert_eq!(line, expected);
}

#[test]
fn persistent_flags_become_feature_words() {
    let folder = Folder::new();
    let image = folder.luks2();
    edit_metadata(&image, |json| {
        json["config"]["flags"] = serde_json::json!(["no-read-workqueue", "allow-discards"]);
    });
    let line = cryptline(["table".as_ref(), image.as_path()]).success().stdout_text();
    assert!(line.ends_with(" 3 allow_discards no_read_workqueue sector_size:4096\n"), "{line}");
}

#[test]
fn dispatch_options_are_printed_as_the_words_that_ask_the_kernel_for_the_same() {
    let folder = Folder::new();
    let image = folder.luks2();
    let words = |options: &[&str]| {
        let line = folder.run(&["table"], &image, options).success();
        let line = line.stdout_text();
        let (_, words) = line.trim().split_once(" 32768 ").unwrap();
        words.to_owned()
    };
    let plain = "1 sector_size:4096";
    assert_eq!(words(&["--dispatch=queue"]), plain);
    assert_eq!(words(&["--dispatch=auto"]), plain);
    let inline = "3 no_read_workqueue no_write_workqueue sector_size:4096";
    assert_eq!(words(&["--dispatch=inline"]), inline);
    assert_eq!(words(&["--perf-no_write_workqueue", "--read-dispatch=inline"]), inline);
    let all = [
        "--perf-no_write_workqueue",
        "--perf-no_read_workqueue",
        "--perf-submit_from_crypt_cpus",
        "--perf-high_priority",
        "--perf-same_cpu_crypt",
        "--allow-discards",
    ];
    assert_eq!(
        words(&all),
        "7 allow_discards same_cpu_crypt high_priority submit_from_crypt_cpus \
         no_read_workqueue no_write_workqueue sector_size:4096"
    );
    // Over what the header wishes.
    edit_metadata(&image, |json| {
        json["config"]["flags"] = serde_json::json!(["same-cpu-crypt", "no-read-workqueue"]);
    });
    assert_eq!(words(&[]), "3 same_cpu_crypt no_read_workqueue sector_size:4096");
    assert_eq!(words(&["--dispatch=auto"]), plain);
    assert_eq!(words(&["--dispatch=queue"]), "2 same_cpu_crypt sector_size:4096");
    assert_eq!(words(&["--dispatch=inline"]), inline);
}

#[test]
fn words_of_a_table_choose_the_dispatch_and_contradictions_are_refused() {
    let line = |words: &str| format!("0 2048 crypt aes-xts-plain64 {ZEROS} 0 ram:1M 0 {words}");
    let serve = |words: &str, options: &[&str]| {
        let table = line(words);
        let run = ["serve", "--table", &table, "--run", "true", "-v"];
        cryptline(run.iter().chain(options))
    };
    for (words, options, says) in [
        ("1 force_inline", &[][..], "dispatch: inline"),
        ("1 no_read_workqueue", &["--helpers=0"], "read inline, write auto (no helpers)"),
        ("1 same_cpu_crypt", &[], "dispatch: queue (same_cpu_crypt)"),
        ("1 force_inline", &["--dispatch=queue"], "dispatch: queue"),
        ("2 no_write_workqueue submit_from_crypt_cpus", &[], "read queue, write inline"),
        ("", &["--perf-submit_from_crypt_cpus"], "queue (submit_from_crypt_cpus)"),
    ] {
        let report = serve(words, options).success().stderr_text();
        assert!(report.contains(says), "{words} {options:?}: {report}");
    }
    for word in ["same_cpu_crypt", "submit_from_crypt_cpus", "high_priority"] {
        let refusal = format!("{word} in the table is about the queue");
        refused(serve(&format!("1 {word}"), &["--dispatch=inline"]), 1, &refusal);
        let table = line(&format!("1 {word}"));
        refused(cryptline(["table", "--table", &table, "--dispatch=inline"]), 1, &refusal);
    }
}

#[test]
fn a_shown_table_opens_the_volume_again() {
    let folder = Folder::new();
    let image = folder.luks2();
    let line = folder.run(&["table"], &image, &["--show-keys"]).success().stdout_text();
    assert!(!line.contains(ZEROS), "{line}");
    let file = folder.path("table");
    fs::write(&file, &line).unwrap();
    let at_file = format!("@{}", file.display());
    cryptline(["serve", "--table", line.trim(), "--run", "true"]).success();
    cryptline(["serve", "--table", &at_file, "--run", "true"]).success();
    cryptline_with_input(["serve", "--table", "-", "--run", "true"], line.as_bytes()).success();
    let again = cryptline(["table", "--table", &at_file, "--show-keys"]).success();
    assert_eq!(again.stdout_text(), line);
}

#[test]
fn a_table_of_several_lines_is_printed_and_served() {
    let folder = Folder::new();
    let image = folder.path("image");
    fs::write(&image, vec![7; 64 * 512]).unwrap();
    let path = image.display();
    let table = format!(
        "0 16 crypt aes-xts-plain64 {ZEROS} 0 {path} 40\n16 11 linear {path} 5\n27 16 crypt aes-cbc-plain64 {} 0 {path} 16",
        &ZEROS[..64]
    );
    let file = folder.path("table");
    fs::write(&file, format!("# three ranges\n{table}\n")).unwrap();
    let at_file = format!("@{}", file.display());
    let printed = cryptline(["table", "--table", &at_file]).success();
    assert_eq!(printed.stdout_text(), format!("{table}\n"));
    for given in [at_file.as_str(), table.as_str()] {
        let served = cryptline(["serve", "--table", given, "--run", "true", "-v"]).success();
        let report = served.stderr_text();
        assert!(report.contains("segments: 3"), "{report}");
        assert!(report.contains("aes-xts-plain64, aes-cbc-plain64, 512-bit key"), "{report}");
        assert!(!report.contains(ZEROS), "the key is shown: {report}");
    }
}

#[test]
fn a_table_over_ram_needs_no_file() {
    let line = format!("0 2048 crypt aes-xts-plain64 {ZEROS} 0 ram:1M 0");
    cryptline(["serve", "--table", &line, "--run", "true"]).success();
    let too_long = format!("0 2056 crypt aes-xts-plain64 {ZEROS} 0 ram:1M 0");
    refused(cryptline(["serve", "--table", &too_long]), 4, "needs");
}

#[test]
fn broken_tables_get_the_kernels_words_and_exit_code_1() {
    let folder = Folder::new();
    let short = &ZEROS[..60];
    for (line, text) in [
        (String::new(), "table is empty"),
        ("0 8 crypt".into(), "Not enough arguments"),
        ("0 0 crypt a b c d e".into(), "zero-length target"),
        ("0 8 striped 1 8 d 0".into(), "not supported yet: striped"),
        ("0 8 linear /dev/null".into(), "Invalid argument count"),
        ("0 8 zero\n9 8 zero".into(), "Gap in table"),
        (format!("0 8 crypt aes-xts-plain64 {short} 0 ram:1M 0"), "Error decoding and setting key"),
        (format!("0 8 crypt aes-xts-plain64 zz{ZEROS} 0 ram:1M 0"), "Error decoding"),
        (format!("0 8 crypt aes-xts-plain64 {ZEROS} x ram:1M 0"), "Invalid iv_offset sector"),
        (format!("0 8 crypt aes-xts-plain64 {ZEROS} 0 ram:1M -1"), "Invalid device sector"),
        (format!("0 8 crypt aes-xts-plain64 {ZEROS} 0 ram:x 0"), "is not a size"),
        (format!("0 8 crypt anubis-cbc-plain64 {ZEROS} 0 ram:1M 0"), "not supported yet"),
        (format!("0 8 crypt aes-xts-plain64 {ZEROS} 0 ram:1M 0 1 fast"), "Invalid feature arguments"),
        ("@/nonexistent".into(), "cannot read the table"),
    ] {
        let run = cryptline(["serve", "--table", &line, "--run", "true"]);
        let code = if line.starts_with('@') { 4 } else { 1 };
        assert!(!run.stderr_text().contains(&ZEROS[..32]), "the key is in the message: {run}");
        refused(run, code, text);
    }
    fs::write(folder.path("binary"), [0xff; 100]).unwrap();
    let binary = format!("@{}", folder.path("binary").display());
    refused(cryptline(["serve", "--table", &binary]), 1, "is not text");
    refused(cryptline(["serve", "--table", "@/dev/zero"]), 1, "longer than 64 KiB");
}

#[test]
fn plain_keys_are_those_of_cryptsetup() {
    let folder = Folder::new();
    let image = folder.path("plain.img");
    fs::write(&image, [0; 8192]).unwrap();
    let path = image.to_str().unwrap();
    let base = [&["table", path, "--show-keys"], &PLAIN[..]].concat();
    let line = cryptline_with_input(&base, b"xxx").success().stdout_text();
    assert_eq!(line, format!("0 16 crypt aes-xts-plain64 {PLAIN_KEY} 0 {path} 0\n"));
    let layout = ["--offset=2", "--skip=3", "--size=8", "--allow-discards"];
    let line = cryptline_with_input([&base[..], &layout].concat(), b"xxx").success();
    assert_eq!(line.stdout_text(), format!("0 8 crypt aes-xts-plain64 {PLAIN_KEY} 3 {path} 2 1 allow_discards\n"));
}

#[test]
fn a_plain_key_file_is_the_key_itself() {
    let folder = Folder::new();
    let (image, key) = (folder.path("plain.img"), folder.path("raw"));
    fs::write(&image, [0; 8192]).unwrap();
    fs::write(&key, [0x5a; 40]).unwrap();
    let (path, key) = (image.to_str().unwrap(), key.to_str().unwrap());
    let base = ["table", path, "--show-keys", "--type=plain", "--cipher=aes-xts-plain64"];
    let line = cryptline([&base[..], &["--key-size=256", "--key-file", key]].concat()).success();
    let expected = "5a".repeat(32);
    assert_eq!(line.stdout_text(), format!("0 16 crypt aes-xts-plain64 {expected} 0 {path} 0\n"));
    let long = cryptline([&base[..], &["--key-size=512", "--key-file", key]].concat());
    refused(long, 1, "40 of the 64 bytes");
    // Without a hash the passphrase is the key, cut or filled up with zeros.
    let unhashed = [&base[..], &["--key-size=256", "--hash=plain", "--key-file=-"]].concat();
    let line = cryptline_with_input(&unhashed, b"0123").success().stdout_text();
    assert!(line.contains(&format!(" 30313233{} ", "00".repeat(28))), "{line}");
}

#[test]
fn plain_volumes_are_served_and_nothing_about_them_is_guessed() {
    let folder = Folder::new();
    let image = folder.path("plain.img");
    fs::write(&image, [0; 8192]).unwrap();
    let path = image.to_str().unwrap();
    let serve = [&["serve", path, "--run=true"], &PLAIN[..]].concat();
    cryptline_with_input(&serve, b"xxx").success();
    for left_out in 1..4 {
        let mut line = serve.clone();
        let option = line.remove(3 + left_out);
        refused(cryptline_with_input(&line, b"xxx"), 1, option.split('=').next().unwrap());
    }
    refused(cryptline(["serve", path, "--cipher=aes-xts-plain64"]), 1, "--type plain");
    let beyond = [&serve[..], &["--offset=16"]].concat();
    refused(cryptline_with_input(&beyond, b"xxx"), 4, "cut short");
    let far = [&serve[..], &["--offset=18446744073709551615"]].concat();
    refused(cryptline_with_input(&far, b"xxx"), 1, "--offset");
    let long = [&serve[..], &["--size=17"]].concat();
    refused(cryptline_with_input(&long, b"xxx"), 4, "cut short");
    let odd = [&serve[..], &["--sector-size=1000"]].concat();
    refused(cryptline_with_input(&odd, b"xxx"), 1, "sector_size");
    let off_grid = [&serve[..], &["--sector-size=4096", "--skip=3"]].concat();
    refused(cryptline_with_input(&off_grid, b"xxx"), 1, "iv_offset");
}

#[test]
fn ram_targets_take_sizes_and_ciphers_and_no_keys() {
    let serve = |options: &[&str]| cryptline([&["serve", "--run=true"], options].concat());
    serve(&["ram:512K"]).success();
    serve(&["ram:4M", "--key-size=256", "--sector-size=512"]).success();
    refused(serve(&["ram:"]), 1, "is not a size");
    refused(serve(&["ram:0"]), 1, "0 bytes");
    refused(serve(&["ram:1000"]), 1, "512-byte sectors");
    refused(serve(&["ram:9999999P"]), 1, "too large");
    refused(serve(&["ram:1P"]), 3, "memory");
    refused(serve(&["ram:1M", "--key-file=x"]), 1, "random key");
    refused(serve(&["ram:1M", "--read-only"]), 1, "--read-only");
    refused(serve(&["ram:1M", "--hash=sha256"]), 1, "--hash");
    refused(cryptline(["table", "ram:1M"]), 1, "random key");
}
