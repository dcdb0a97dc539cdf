//! Tables: the kernel's grammar, its order of checks and its words, and the line back.

use proptest::prelude::*;

use super::*;

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn line(rest: &str) -> String {
    format!("0 2048 crypt aes-xts-plain64 {KEY} {rest}")
}

fn one(text: &str) -> CryptTarget {
    let mut lines = match Table::parse_grammar(text) {
        Ok(table) => table.into_lines(),
        Err(error) => panic!("{text}: {error}"),
    };
    assert_eq!(lines.len(), 1, "{text}");
    match lines.remove(0) {
        ParsedLine::Crypt(target) => *target,
        other => panic!("{other}: another target"),
    }
}

fn error(text: &str) -> String {
    Table::parse(text).err().unwrap_or_else(|| panic!("{text}: accepted")).to_string()
}

#[test]
fn a_crypt_line_gives_its_parts() {
    let text = line("24 /dev/sdx1 4096 3 allow_discards sector_size:4096 iv_large_sectors");
    let target = one(&text);
    assert_eq!((target.start, target.len), (0, 2048));
    assert_eq!(target.cipher.as_str(), "aes-xts-plain64");
    assert_eq!(target.key.as_bytes(), (0..32).collect::<Vec<u8>>());
    assert_eq!((target.iv_offset, target.offset), (24, 4096));
    assert_eq!(target.device, "/dev/sdx1");
    let options =
        TableOptions { allow_discards: true, sector_size: 4096, iv_large_sectors: true, ..TableOptions::default() };
    assert_eq!(target.options, options);
    assert!(Table::parse(&text).is_ok());
}

#[test]
fn every_option_is_known_and_printed_in_the_kernels_order() {
    let text = line(
        "0 8:1 0 9 integrity_key_size:32 iv_large_sectors sector_size:1024 \
         integrity:16:NONE no_write_workqueue NO_READ_WORKQUEUE Submit_From_Crypt_Cpus \
         high_priority same_cpu_crypt",
    );
    let expected = line(
        "0 8:1 0 9 same_cpu_crypt high_priority submit_from_crypt_cpus no_read_workqueue \
         no_write_workqueue integrity:16:NONE sector_size:1024 iv_large_sectors \
         integrity_key_size:32",
    );
    assert_eq!(*one(&text).to_kernel_line(true, "8:1"), expected);
    let discards = one(&line("0 8:1 0 2 sector_size:512 ALLOW_DISCARDS"));
    assert_eq!(*discards.to_kernel_line(true, "8:1"), line("0 8:1 0 1 allow_discards"));
}

#[test]
fn force_inline_is_both_no_workqueue_flags_and_printed_as_they_are() {
    for word in ["force_inline", "Force_Inline"] {
        let target = one(&line(&format!("0 8:1 0 2 {word} same_cpu_crypt")));
        let printed = line("0 8:1 0 3 same_cpu_crypt no_read_workqueue no_write_workqueue");
        assert_eq!(*target.to_kernel_line(true, "8:1"), printed);
    }
}

#[test]
fn the_printed_key_is_zeros_unless_asked_for() {
    let target = one(&line("0 /dev/sdx 0").replace("0a0b", "0A0B"));
    let hidden = target.to_kernel_line(false, "7:3");
    let zeros = "0".repeat(64);
    assert_eq!(*hidden, format!("0 2048 crypt aes-xts-plain64 {zeros} 0 7:3 0"));
    assert_eq!(*target.to_kernel_line(true, "7:3"), line("0 7:3 0"));
    assert_eq!(target.to_string(), format!("0 2048 crypt aes-xts-plain64 {zeros} 0 /dev/sdx 0"));
}

#[test]
fn an_empty_key_prints_as_dmsetup_prints_it() {
    let target = one("0 8 crypt cipher_null-ecb - 0 disk 0");
    assert!(target.check_supported().is_ok());
    assert_eq!(*target.to_kernel_line(true, "7:0"), "0 8 crypt cipher_null-ecb - 0 7:0 0");
    assert_eq!(*target.to_kernel_line(false, "7:0"), "0 8 crypt cipher_null-ecb 0 0 7:0 0");
}

#[test]
fn a_keyring_key_is_parsed_and_shown_but_not_supported_yet() {
    let text = "0 8 crypt aes-xts-plain64 :64:logon:cryptsetup:uuid-d0 0 8:1 0";
    let target = one(text);
    assert_eq!(*target.to_kernel_line(false, "8:1"), text);
    assert_eq!(error(text), "not supported yet: keyring key");
}

#[test]
fn upper_case_digits_and_an_odd_last_digit_are_accepted() {
    let text = line("0 d 0").replace(KEY, &format!("{}F", KEY.to_uppercase()));
    assert_eq!(one(&text).key.as_bytes(), (0..32).collect::<Vec<u8>>());
}

#[test]
fn comments_blank_lines_and_any_white_space_are_skipped() {
    let text = format!("\n  # a comment\n\t{}  \r\n\n", line("0\td\x0b 0 0"));
    assert_eq!(one(&text).device, "d");
}

#[test]
fn a_backslash_protects_a_space_in_a_path() {
    let target = one(&line(r"0 /my\ disks/a\\b 0"));
    assert_eq!(target.device, r"/my disks/a\b");
    assert!(target.to_string().ends_with(r" 0 /my\ disks/a\\b 0"));
}

#[test]
fn words_after_the_counted_options_are_ignored() {
    assert_eq!(one(&line("0 d 0 0 nonsense")).options, TableOptions::default());
    assert!(one(&line("0 d 0 1 allow_discards nonsense")).options.allow_discards);
    assert!(one(&line("0 d 0 2 allow_discards allow_discards")).options.allow_discards);
}

#[test]
fn lines_follow_each_other_without_gaps() {
    let second = |start: u64| format!("{}\n{start} 8 crypt cipher_null-ecb - 0 d 0", line("0 d 0"));
    let table = Table::parse_grammar(&second(2048)).map(|table| table.lines().len());
    assert_eq!(table, Ok(2));
    assert!(Table::parse(&second(2048)).is_ok());
    for start in [0, 2047, 2049] {
        assert!(error(&second(start)).starts_with("Gap in table"), "{start}");
    }
    assert!(error("8 8 crypt cipher_null-ecb - 0 d 0").starts_with("Gap in table"));
}

#[test]
fn lines_of_other_targets_give_their_parts() {
    let text = "0 8 linear /dev/sdx\\ 1 4096\n\n# and so on\n8 16 zero\n24 8 error\n";
    let lines = Table::parse(text).map(Table::into_lines);
    let lines = lines.unwrap_or_else(|error| panic!("{error}"));
    let ParsedLine::Linear(linear) = &lines[0] else { panic!("{}: no linear line", lines[0]) };
    assert_eq!(linear.span, TableSpan { start: 0, len: 8 });
    assert_eq!((&*linear.device, linear.offset), ("/dev/sdx 1", 4096));
    assert!(matches!(lines[1], ParsedLine::Zero(TableSpan { start: 8, len: 16 })));
    assert!(matches!(lines[2], ParsedLine::Error(TableSpan { start: 24, len: 8 })));
    let printed: Vec<_> = lines.iter().map(ParsedLine::to_string).collect();
    assert_eq!(printed, ["0 8 linear /dev/sdx\\ 1 4096", "8 16 zero", "24 8 error"]);
    assert_eq!(lines[0].device(), Some("/dev/sdx 1"));
    assert_eq!(lines[1].device(), None);
}

#[test]
fn the_error_strings_of_lines_and_of_other_targets_are_the_kernels() {
    assert_refused(&[
        ("", "Invalid format of table"),
        ("0 8", "Invalid format of table"),
        ("x 8 crypt", "Invalid format of table"),
        ("0 -8 crypt", "Invalid format of table"),
        ("0 36028797018963968 crypt a b c d e", "Invalid format of table"),
        ("0 0 crypt", "zero-length target"),
        ("0 8 crypt", "Not enough arguments"),
        ("0 8 crypt aes-xts-plain64 - 0 d", "Not enough arguments"),
        ("0 8 linear /dev/sdx", "Invalid argument count"),
        ("0 8 linear /dev/sdx 0 0", "Invalid argument count"),
        ("0 8 linear /dev/sdx x", "Invalid device sector"),
        ("0 8 linear /dev/sdx -1", "Invalid device sector"),
        ("0 8 linear /dev/sdx 36028797018963968", "Invalid device sector"),
        ("0 8 zero 1", "No arguments required"),
        ("0 8 linear d 0\n9 8 linear d 8", "Gap in table"),
        ("0 8 linear d 0\n7 8 linear d 8", "Gap in table"),
        ("0 8 linear d 0\n8 0 linear d 8", "zero-length target"),
    ]);
}

#[test]
fn other_targets_and_ciphers_are_not_supported_yet_by_name() {
    assert_eq!(error("0 8 striped 1 8 d 0"), "not supported yet: striped");
    assert_eq!(error("0 8 error d 0"), "not supported yet: error with a device");
    assert!(error("0 8 linnear /dev/sdx 0").starts_with("unknown target type"));
    let text = "0 8 crypt anubis-cbc-essiv:sha256 00112233445566778899aabbccddeeff 0 d 0";
    assert_eq!(error(text), "not supported yet: cipher anubis-cbc-essiv:sha256");
    assert_eq!(error(&line("0 d 0 1 integrity:4:none")), "not supported yet: integrity");
}

/// Asserts that each text is refused with the kernel's text in front.
fn assert_refused<T: AsRef<str>>(cases: &[(T, &str)]) {
    for (text, kernel) in cases {
        let message = error(text.as_ref());
        assert!(message.starts_with(kernel), "{}: {message}", text.as_ref());
    }
}

#[test]
fn the_error_strings_of_options_ciphers_keys_and_offsets_are_the_kernels() {
    let key = |key: &str| line("0 d 0").replace(KEY, key);
    let cipher = |cipher: &str| line("0 d 0").replace("aes-xts-plain64", cipher);
    assert_refused(&[
        (line("0 d 0 10 a b c d e f g h i j"), "Invalid number of feature args"),
        (line("0 d 0 2 allow_discards"), "Invalid number of feature args"),
        (line("0 d 0 -1"), "Invalid number of feature args"),
        (line("0 d 0 allow_discards"), "Invalid number of feature args"),
        (line("0 d 0 1 integrity:0:aead"), "Invalid integrity arguments"),
        (line("0 d 0 1 integrity:481:aead"), "Invalid integrity arguments"),
        (line("0 d 0 1 integrity:4"), "Invalid integrity arguments"),
        (line("0 d 0 1 integrity:4:some"), "Unknown integrity profile"),
        (line("0 d 0 1 integrity_key_size:0"), "Invalid integrity_key_size argument"),
        (line("0 d 0 1 sector_size:256"), "Invalid feature value for sector_size"),
        (line("0 d 0 1 sector_size:8192"), "Invalid feature value for sector_size"),
        (line("0 d 0 1 sector_size:1536"), "Invalid feature value for sector_size"),
        (
            line("0 d 0 1 sector_size:4096").replace("2048", "2047"),
            "Device size is not multiple of sector_size feature",
        ),
        (line("0 d 0 1 discards"), "Invalid feature arguments"),
        (line("0 d 0 1 sector_size:"), "Invalid feature arguments"),
        (line("0 d 0 1 SECTOR_SIZE:512"), "Invalid feature arguments"),
        (key(":32"), "Cannot parse key size"),
        (key(":x:user:d"), "Cannot parse key size"),
        (key("::user:d"), "Cannot parse key size"),
        (line("0 d 0 1 integrity:16:aead"), "Bad cipher specification"),
        (cipher("aes-xts"), "IV mechanism required"),
        (cipher("capi:xts(aes)"), "IV mechanism required"),
        (cipher("aes-xts-plain46"), "Invalid IV mode"),
        (key("0011"), "Error decoding and setting key"),
        (key("-"), "Error decoding and setting key"),
        (key("0"), "Error decoding and setting key"),
        (key(&KEY.replace('f', "g")), "Error decoding and setting key"),
        (key(&KEY.replace('0', "é")), "Error decoding and setting key"),
        (key(":32:user:"), "Error decoding and setting key"),
        (key(":32:admin:d"), "Error decoding and setting key"),
        (key(r":32:user:my\ key"), "Error decoding and setting key"),
        (cipher("cipher_null-ecb"), "Error decoding and setting key"),
        (line("0 d 0 1 sector_size:4096").replace("xts-plain64", "cbc-lmk"), "Error creating IV"),
        (line("4 d 0 1 sector_size:4096"), "Invalid iv_offset sector"),
        (line("x d 0"), "Invalid iv_offset sector"),
        (line("18446744073709551616 d 0"), "Invalid iv_offset sector"),
        (line("0 d 0x10"), "Invalid device sector"),
        (line("0 d 18446744073709551615"), "Invalid device sector"),
    ]);
}

#[test]
fn the_first_of_several_errors_is_the_kernels_first() {
    // Each line repairs what the one before it was refused for.
    assert_refused(&[
        ("0 8 crypt nonsense :32 x d x 1 sector_size:1", "Cannot parse key size"),
        ("0 8 crypt nonsense zz x d x 1 sector_size:1", "Invalid feature value for sector_size"),
        ("0 8 crypt nonsense zz x d x", "Error allocating crypto tfm"),
        ("0 8 crypt aes-xts-plain64 zz x d x", "Error decoding and setting key"),
        ("0 8 crypt cipher_null-ecb - x d x", "Invalid iv_offset sector"),
        ("0 8 crypt cipher_null-ecb - 0 d x", "Invalid device sector"),
    ]);
}

#[test]
fn messages_never_contain_the_key() {
    for text in [line("0 d 0 1 x"), line("x d 0"), line("0 d x"), line("0 d 0").replace("1f ", "1g ")] {
        let message = error(&text);
        assert!(!message.contains("0001"), "{message}");
    }
}

/// Words that are likely to be right, or nearly.
fn words() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("crypt".to_owned()),
        Just("cipher_null-ecb".to_owned()),
        Just("aes-xts-plain64".to_owned()),
        Just("serpent-cbc-essiv:sha256".to_owned()),
        Just("-".to_owned()),
        Just(KEY.to_owned()),
        Just(":32:user:name".to_owned()),
        Just("sector_size:4096".to_owned()),
        Just("integrity:16:none".to_owned()),
        Just("allow_discards".to_owned()),
        "[0-9]{1,2}",
        r"\PC{0,5}",
    ];
    prop::collection::vec(word, 0..12).prop_map(|words| words.join(" "))
}

/// Lines that are right.
fn lines() -> impl Strategy<Value = String> {
    let cipher = prop::sample::select(vec![
        ("aes-xts-plain64", "0123456789abcdefABCDEF0123456789abcdef0123456789abcdef0123456789"),
        ("cipher_null-ecb", "-"),
        ("capi:xts(aes)-plain64", ":64:logon:a:b"),
        ("twofish-cbc-essiv:sha256", "00112233445566778899aabbccddeeff"),
    ]);
    let options = prop::sample::subsequence(
        vec![
            "allow_discards",
            "same_cpu_crypt",
            "HIGH_PRIORITY",
            "submit_from_crypt_cpus",
            "no_read_workqueue",
            "no_write_workqueue",
            "integrity:8:none",
            "sector_size:2048",
            "iv_large_sectors",
            "integrity_key_size:7",
        ],
        0..=9,
    );
    let numbers = (0..u64::MAX / 8192, 1..1_u64 << 40, 0..1_u64 << 40);
    (cipher, options.prop_shuffle(), numbers, r"[a-z:/ \\é]{1,9}").prop_map(
        |((cipher, key), options, (iv_offset, len, offset), device)| {
            let (len, iv_offset, device) = (len * 8, iv_offset * 8, escape(&device));
            let (count, options) = (options.len(), options.join(" "));
            format!("0 {len} crypt {cipher} {key} {iv_offset} {device} {offset} {count} {options}")
        },
    )
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in prop_oneof![words(), any::<String>()]) {
        for text in [&text, &format!("0 8 crypt {text}"), &line(&text)] {
            if let Err(error) = Table::parse(text) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    #[test]
    fn what_is_printed_is_parsed_to_the_same(text in lines()) {
        let target = one(&text);
        let printed = target.to_kernel_line(true, &escape(&target.device));
        let again = one(&printed);
        prop_assert_eq!(&*again.to_kernel_line(true, &escape(&again.device)), &*printed);
        prop_assert_eq!((again.start, again.len), (target.start, target.len));
        prop_assert_eq!((again.iv_offset, again.offset), (target.iv_offset, target.offset));
        prop_assert_eq!(again.cipher, target.cipher);
        prop_assert_eq!(again.key.as_bytes(), target.key.as_bytes());
        prop_assert_eq!(again.device, target.device);
        prop_assert_eq!(again.options, target.options);
    }
}
