//! Every kind of bad disk, by name: one line, the right exit code, never a panic, never data.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use crate::common::*;
use serde_json::{Value, json};

/// What every verb says of an image that has no sound header.
#[track_caller]
fn every_verb_refuses(folder: &Folder, image: &Path, text: &str) {
    refused(cryptline(["info".as_ref(), image]), 4, text);
    refused(folder.check(image), 4, text);
    refused(folder.serve(image), 4, text);
    refused(cryptline(["table".as_ref(), image]), 4, text);
}

/// An image whose header is sound, but which must not be served.
#[track_caller]
fn only_info_shows(folder: &Folder, image: &Path, code: i32, text: &str) {
    let shown = cryptline(["info".as_ref(), image]).success().stdout_text();
    let line = shown.lines().find(|line| line.starts_with("  Not served"));
    assert!(line.is_some_and(|line| line.contains(text)), "{shown}");
    refused(folder.serve(image), code, text);
    refused(cryptline(["table".as_ref(), image]), code, text);
}

#[track_caller]
fn edited(change: impl FnOnce(&mut Value)) -> (Folder, std::path::PathBuf) {
    let folder = Folder::new();
    let image = folder.luks2();
    edit_metadata(&image, change);
    (folder, image)
}

#[test]
fn a_missing_file_is_named() {
    let folder = Folder::new();
    every_verb_refuses(&folder, &folder.path("nothing"), "No such file or directory");
}

#[test]
fn a_directory_is_refused_as_one() {
    let folder = Folder::new();
    every_verb_refuses(&folder, folder.root(), "is a directory");
}

#[test]
fn a_character_device_is_refused_and_not_waited_for() {
    let folder = Folder::new();
    let text = "neither a regular file nor a block device";
    every_verb_refuses(&folder, Path::new("/dev/zero"), text);
}

#[test]
fn a_fifo_is_refused_and_not_waited_for() {
    let folder = Folder::new();
    let fifo = folder.path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo runs").success());
    every_verb_refuses(&folder, &fifo, "neither a regular file nor a block device");
}

#[test]
fn a_file_without_a_header_is_refused_and_plain_is_suggested() {
    let folder = Folder::new();
    for bytes in [vec![], vec![0], vec![0; 1 << 20], vec![0xaa; 100_000]] {
        let image = folder.path("raw");
        fs::write(&image, bytes).unwrap();
        every_verb_refuses(&folder, &image, "not a LUKS device");
        refused(folder.serve(&image), 4, "--type plain");
        // It has no such option.
        let info = cryptline(["info".as_ref(), image.as_path()]);
        assert!(!info.stderr_text().contains("--"), "{info}");
    }
}

#[test]
fn a_name_with_a_newline_keeps_the_message_on_one_line() {
    let folder = Folder::new();
    let image = folder.path("two\nlines");
    fs::write(&image, "no header").unwrap();
    every_verb_refuses(&folder, &image, "two\\nlines");
}

#[test]
fn a_luks2_file_cut_short_is_refused_wherever_it_is_cut() {
    let folder = Folder::new();
    let image = folder.luks2();
    for (len, text) in
        [(20_000, "key slot 0 needs"), (100_000, "key slot 0 needs"), (10_000, "cut short"), (100, "cut short")]
    {
        resize(&image, len);
        every_verb_refuses(&folder, &image, text);
    }
    resize(&image, 3);
    every_verb_refuses(&folder, &image, "not a LUKS device");
}

#[test]
fn a_luks2_file_without_room_for_data_can_be_looked_at_only() {
    let folder = Folder::new();
    let image = folder.luks2();
    resize(&image, 16 << 20);
    only_info_shows(&folder, &image, 4, "too small");
    folder.check(&image).success();
}

#[test]
fn fixed_data_beyond_the_end_of_the_file_is_refused() {
    let (folder, image) = edited(|json| json["segments"]["0"]["size"] = json!("8388608"));
    only_info_shows(&folder, &image, 4, "truncated");
}

#[test]
fn a_luks1_file_cut_short_is_refused() {
    let folder = Folder::new();
    let image = folder.luks1();
    // Room for the key slots, and none for data.
    resize(&image, 2 << 20);
    only_info_shows(&folder, &image, 4, "too small");
    for len in [1 << 20, 100_000, 592] {
        resize(&image, len);
        every_verb_refuses(&folder, &image, "truncated");
    }
    resize(&image, 500);
    every_verb_refuses(&folder, &image, "cut short");
}

#[test]
fn either_copy_of_a_header_is_enough_and_the_damage_is_told() {
    for (offset, damaged) in [(5000, "primary"), (0x4000 + 5000, "secondary")] {
        let folder = Folder::new();
        let image = folder.luks2();
        poke(&image, offset, b"damage");
        let warning = format!("the {damaged} header copy is damaged");
        let checked = folder.check(&image).success();
        assert!(checked.stderr_text().contains(&warning), "{checked}");
        let served = folder.serve(&image).success();
        assert!(served.stderr_text().contains(&warning), "{served}");
        let shown = cryptline(["info".as_ref(), image.as_path()]).success();
        assert!(shown.stdout_text().contains(&warning), "{shown}");
        let state = format!("  Header copy   {damaged}: damaged (");
        assert!(shown.stdout_text().contains(&state), "{shown}");
    }
}

#[test]
fn damage_of_a_header_is_told_also_where_the_key_is_wrong() {
    let folder = Folder::new();
    let image = folder.luks2();
    poke(&image, 5000, b"damage");
    for verb in [&["open", "--check"][..], &["table", "--show-keys"]] {
        let line = verb.iter().map(AsRef::as_ref).chain([image.as_os_str(), OsStr::new("--key-file=-")]);
        let run = cryptline_with_input(line, b"wrong");
        let run = run.exited_with(2);
        let said = run.stderr_text();
        let warnings = said.matches("the primary header copy is damaged").count();
        assert_eq!(warnings, 1, "{run}");
        assert!(said.contains("No key available"), "{run}");
    }
}

#[test]
fn both_copies_damaged_are_refused_and_a_backup_is_suggested() {
    let folder = Folder::new();
    let image = folder.luks2();
    poke(&image, 5000, b"damage");
    poke(&image, 0x4000 + 5000, b"damage");
    every_verb_refuses(&folder, &image, "both LUKS2 header copies are damaged");
    every_verb_refuses(&folder, &image, "header restore");
}

#[test]
fn a_header_that_says_it_is_larger_than_the_file_is_refused() {
    let folder = Folder::new();
    let image = folder.luks2();
    resize(&image, 1 << 20);
    // hdr_size of 4 MiB, in both copies.
    rewrite(&image, |copy| copy[8..16].copy_from_slice(&0x40_0000_u64.to_be_bytes()));
    every_verb_refuses(&folder, &image, "truncated");
}

#[test]
fn overlapping_key_slot_areas_are_refused() {
    let (folder, image) = edited(|json| {
        let slot = json["keyslots"]["0"].clone();
        json["keyslots"]["1"] = slot;
        json["digests"]["0"]["keyslots"] = json!(["0", "1"]);
    });
    every_verb_refuses(&folder, &image, "overlap");
}

#[test]
fn overlapping_luks1_key_slots_are_refused() {
    let folder = Folder::new();
    let image = folder.luks1();
    let first = fs::read(&image).unwrap()[208..256].to_vec();
    poke(&image, 256, &first);
    every_verb_refuses(&folder, &image, "key slot 1 overlaps key slot 0");
}

#[test]
fn json_that_is_deep_huge_or_not_text_is_refused() {
    let folder = Folder::new();
    let deep = "[".repeat(10_000);
    let huge = format!("{{\"a\":\"{}\"}}", "x".repeat(12_200));
    let unended = vec![b' '; 0x4000 - 4096];
    let texts: [&[u8]; 6] =
        [deep.as_bytes(), huge.as_bytes(), b"{\"keyslots\":\"\xff\xfe\"}", b"{} trailing", b"", &unended];
    let image = folder.luks2();
    for text in texts {
        set_metadata(&image, text);
        every_verb_refuses(&folder, &image, "header");
    }
}

#[test]
fn json_with_something_behind_its_end_is_refused() {
    let folder = Folder::new();
    let image = folder.luks2();
    let mut text = metadata(&image).to_string().into_bytes();
    text.extend_from_slice(b"\0not padding");
    set_metadata(&image, &text);
    every_verb_refuses(&folder, &image, "header");
}

#[test]
fn numbers_out_of_all_bounds_are_refused() {
    for (pointer, value) in [
        ("/segments/0/offset", json!("18446744073709551615")),
        ("/segments/0/offset", json!("-1")),
        ("/segments/0/offset", json!(16_777_216)),
        ("/segments/0/sector_size", json!(8192)),
        ("/segments/0/sector_size", json!(0)),
        ("/keyslots/0/key_size", json!(4_294_967_295_u32)),
        ("/keyslots/0/area/offset", json!("99999999999999999999")),
        ("/keyslots/0/area/size", json!("18446744073709551615")),
        ("/keyslots/0/af/stripes", json!(1)),
        ("/config/keyslots_size", json!("18446744073709547520")),
        ("/digests/0/iterations", json!(0)),
    ] {
        let (folder, image) = edited(|json| *json.pointer_mut(pointer).unwrap() = value.clone());
        refused(cryptline(["info".as_ref(), image.as_path()]), 4, "header");
        refused(folder.serve(&image), 4, "header");
    }
}

#[test]
fn argon2_costs_of_terabytes_are_refused_before_they_are_paid() {
    let (folder, image) = edited(|json| json["keyslots"]["0"]["kdf"]["memory"] = json!(4_294_967_295_u32));
    every_verb_refuses(&folder, &image, "Argon2 memory");
}

#[test]
fn hours_of_key_derivation_are_refused() {
    let (folder, image) = edited(|json| json["keyslots"]["0"]["kdf"]["time"] = json!(4_000_000_000_u32));
    refused(folder.check(&image), 4, "--kdf-time-limit");
    refused(folder.serve(&image), 4, "--kdf-time-limit");
    cryptline(["info".as_ref(), image.as_path()]).success();
}

#[test]
fn iv_tweak_is_refused_because_programs_disagree_on_it() {
    let (folder, image) = edited(|json| json["segments"]["0"]["iv_tweak"] = json!("8"));
    only_info_shows(&folder, &image, 4, "iv_tweak");
}

#[test]
fn unknown_requirements_are_refused_by_name() {
    let (folder, image) = edited(|json| json["config"]["requirements"] = json!({"mandatory": ["time-travel"]}));
    only_info_shows(&folder, &image, 4, "'time-travel'");
}

#[test]
fn reencryption_in_progress_is_refused_by_name() {
    let (folder, image) = edited(|json| {
        json["config"]["requirements"] = json!({"mandatory": ["online-reencrypt-v2"]});
    });
    only_info_shows(&folder, &image, 4, "reencryption in progress");
}

#[test]
fn integrity_is_not_supported_yet() {
    let (folder, image) = edited(|json| {
        json["segments"]["0"]["integrity"] = json!({
            "type": "hmac(sha256)", "journal_encryption": "none", "journal_integrity": "none"
        });
    });
    only_info_shows(&folder, &image, 1, "not supported yet: integrity");
}

#[test]
fn null_cipher_is_refused_unless_allowed() {
    let (folder, image) = edited(|json| json["segments"]["0"]["encryption"] = json!("cipher_null-ecb"));
    only_info_shows(&folder, &image, 4, "--allow-null-cipher");
    let options = ["--run", "true", "--allow-null-cipher"];
    folder.run(&["serve"], &image, &options).success();
}

#[test]
fn a_cipher_that_is_not_there_yet_is_exit_code_1() {
    let (folder, image) = edited(|json| json["segments"]["0"]["encryption"] = json!("anubis-cbc-plain64"));
    only_info_shows(&folder, &image, 1, "not supported yet: cipher anubis-cbc-plain64");
}

#[test]
fn text_from_the_header_cannot_drive_the_terminal() {
    let (_folder, image) = edited(|json| {
        json["config"]["requirements"] = json!({"mandatory": ["\u{1b}[31m\nred"]});
        json["tokens"]["0"] = json!({"type": "\u{1b}]0;title\u{7}", "keyslots": ["0"]});
    });
    let shown = cryptline(["info".as_ref(), image.as_path()]).success().stdout_text();
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown:?}");
}

#[test]
fn a_read_only_file_is_served_read_only_or_not_at_all() {
    let folder = Folder::new();
    let image = folder.luks2();
    let mut readable = fs::metadata(&image).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut readable, 0o444);
    fs::set_permissions(&image, readable).unwrap();
    // Permissions do not stop root, so the program runs as somebody else then.
    let as_user = |options: &[&str]| {
        let mut command = as_ordinary_user(&folder);
        command.arg("serve").arg(&image).arg("--key-file").arg(folder.key());
        let run = cryptline_testkit::peer::run;
        run(command.args(["--run", "true"]).args(options), std::time::Duration::from_secs(30))
    };
    refused(as_user(&[]), 4, "use --read-only");
    as_user(&["--read-only"]).success();
}

/// The program in the folder, run by a user whom file permissions hold.
fn as_ordinary_user(folder: &Folder) -> std::process::Command {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        return command();
    }
    let program = folder.path("cryptline");
    // By another process: while this one has the copy open for writing, a test beside it may fork
    // and so make it busy.
    let mut copy = std::process::Command::new("cp");
    let copied = copy.arg(env!("CARGO_BIN_EXE_cryptline")).arg(&program).status();
    assert!(copied.unwrap().success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder.root(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder.key(), fs::Permissions::from_mode(0o444)).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    command
}

#[test]
fn an_image_that_somebody_writes_to_is_busy() {
    let folder = Folder::new();
    let image = folder.luks2();
    let file = fs::File::options().read(true).write(true).open(&image).unwrap();
    cryptline_sys::lock_file(&file, true).unwrap();
    refused(folder.serve(&image), 5, "in use");
    let mut forced = command();
    forced.arg("create").arg(&image).args(["--size=20M", "--force", "--key-file"]);
    let run = cryptline_testkit::peer::run;
    let forced = run(forced.arg(folder.key()), std::time::Duration::from_secs(30));
    refused(forced, 5, "in use");
    // Looking at the header is allowed.
    folder.check(&image).success();
    cryptline(["info".as_ref(), image.as_path()]).success();
}
