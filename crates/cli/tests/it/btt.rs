//! `btt create|check|info`, and volumes over `btt:` and `pmem:` targets.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::*;
use cryptline::{Volume, VolumeKind, Warning};
use cryptline_engine::BackendChoice;
use cryptline_engine::blocking::Blocking;
use cryptline_testkit::peer::run;
use serde_json::Value;

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// Where the parts of a table of 16 MiB and 512-byte sectors are in its file (UEFI's formulas).
const MAP: u64 = 4096 + 16_625_664;
const FLOG: u64 = 4096 + 16_756_736;
const INFO_COPY: u64 = 4096 + 16_773_120;

fn blocking(volume: &Volume) -> Blocking {
    Blocking::new(volume.gate(), BackendChoice::Auto).unwrap()
}

fn table(folder: &Folder, sector_size: &str) -> PathBuf {
    let path = folder.path("disk.btt");
    let file = path.as_os_str();
    let more = ["--size=16388K", "--sector-size", sector_size].map(AsRef::as_ref);
    let arguments = ["btt", "create"].map(AsRef::as_ref);
    let _ = cryptline(arguments.into_iter().chain([file]).chain(more)).success();
    path
}

fn btt(verb: &[&str], path: &Path) -> cryptline_testkit::peer::Run {
    let words = ["btt"].iter().chain(verb).map(AsRef::as_ref);
    cryptline(words.chain([path.as_os_str()]))
}

fn json(verb: &[&str], path: &Path) -> Value {
    let run = btt(&[verb, &["--json"]].concat(), path);
    serde_json::from_slice(&run.stdout).unwrap()
}

fn put(path: &Path, offset: u64, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

fn line_of(path: &Path, sectors: u64) -> String {
    let path = path.display();
    format!("0 {sectors} crypt aes-xts-plain64 {KEY} 0 btt:{path} 0")
}

#[test]
fn new_table_is_sound_and_says_what_it_is() {
    let folder = Folder::new();
    let path = table(&folder, "512");
    let info = json(&["info"], &path);
    assert_eq!(info["version"], "1.1");
    assert_eq!(info["sector_size"], 512);
    assert_eq!(info["sectors"], 32202);
    assert_eq!(info["arenas"][0]["start"], 4096);
    assert_eq!(info["arenas"][0]["map_offset"], 16_625_664);
    assert_eq!(info["arenas"][0]["info_block"], "both");
    let text = btt(&["info"], &path).success().stdout_text();
    assert!(text.contains("32202 sectors of 512 bytes"), "{text}");
    assert!(text.contains("page cache (msync)"), "{text}");
    assert_eq!(json(&["check"], &path)["sound"], true);
    // As a target is written, too.
    let target = format!("btt:{}", path.display());
    let _ = btt(&["check"], Path::new(&target)).success();
}

#[test]
fn table_is_made_over_an_existing_file_only_by_force() {
    let folder = Folder::new();
    let path = folder.path("old.img");
    fs::write(&path, vec![0x5a; (16 << 20) + 4096]).unwrap();
    refused(btt(&["create"], &path), 5, "give --force");
    let uuid = "11223344-5566-7788-99aa-bbccddeeff00";
    let _ = btt(&["create", "--force", "--uuid", uuid, "--sector-size=512"], &path).success();
    assert_eq!(json(&["info"], &path)["uuid"], uuid);
    let mut id = [0; 16];
    let file = fs::File::open(&path).unwrap();
    file.read_exact_at(&mut id, 4096 + 16).unwrap();
    assert_eq!((id[0], id[15]), (0x11, 0));
    // What was there is gone.
    let null = "--table=0 32202 crypt cipher_null-ecb - 0 btt:";
    let volume = open(&[&format!("{null}{} 0", path.display())]);
    let mut bytes = vec![1; 32202 * 512];
    blocking(&volume).read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 0));
}

#[test]
fn encrypted_sectors_lie_where_the_map_says() {
    let folder = Folder::new();
    let path = table(&folder, "512");
    let line = line_of(&path, 32202);
    let data: Vec<u8> = (1..=251).cycle().take(512 * 100).collect();
    let volume = open(&["--table", &line]);
    let how = volume.info().base.to_string();
    assert_eq!(how, "BTT of 512-byte sectors over page cache (msync)");
    blocking(&volume).write_at(512 * 9, &data, true).unwrap();
    drop(volume);
    let mut read = vec![0; data.len()];
    let again = open(&["--table", &line, "--read-only"]);
    blocking(&again).read_at(512 * 9, &mut read).unwrap();
    assert!(read == data);
    drop(again);
    let report = json(&["check"], &path);
    assert_eq!((&report["sound"], &report["written_sectors"]), (&true.into(), &100.into()));
    // The same bytes as without a table, at the block that the map names.
    let file = fs::File::open(&path).unwrap();
    let mut entry = [0; 4];
    file.read_exact_at(&mut entry, MAP + 9 * 4).unwrap();
    let block = u64::from(u32::from_le_bytes(entry) & 0x3fff_ffff);
    let mut stored = vec![0; 512];
    file.read_exact_at(&mut stored, 8192 + block * 512).unwrap();
    let plain = folder.path("plain.img");
    fs::write(&plain, vec![0; 512 * 10]).unwrap();
    let line = format!("0 10 crypt aes-xts-plain64 {KEY} 0 {} 0", plain.display());
    let volume = open(&["--table", &line]);
    blocking(&volume).write_at(512 * 9, &data[..512], true).unwrap();
    assert!(fs::read(&plain).unwrap()[512 * 9..] == stored);
}

/// Copies a volume into a table, as anything that writes to a disk does.
fn luks_in_table(folder: &Folder) -> PathBuf {
    let image = fs::read(folder.luks2()).unwrap();
    let path = folder.path("luks.btt");
    let size = format!("--size={}", image.len() + (4 << 20));
    let _ = btt(&["create", &size], &path).success();
    let sectors = image.len() / 512;
    let place = path.display();
    let null = format!("--table=0 {sectors} crypt cipher_null-ecb - 0 btt:{place} 0 1 sector_size:4096");
    blocking(&open(&[&null])).write_at(0, &image, true).unwrap();
    path
}

#[test]
fn luks_volume_lies_in_a_table() {
    let folder = Folder::new();
    let path = luks_in_table(&folder);
    let target = format!("btt:{}", path.display());
    let key = folder.key();
    let key = key.to_str().unwrap();
    let volume = open(&[&target, "--key-file", key]);
    assert_eq!(volume.info().kind, VolumeKind::Luks2);
    assert!(volume.warnings().is_empty(), "{:?}", volume.warnings());
    assert!(!volume.info().discards);
    let mut disk = blocking(&volume);
    disk.write_at(4096 * 5, &[0x77; 8192], false).unwrap();
    disk.flush().unwrap();
    drop((disk, volume));
    let text = cryptline(["info", &target]).success().stdout_text();
    assert!(text.contains("LUKS2"), "{text}");
    let opened = cryptline(["open", "--check", &target, "--key-file", key]);
    assert!(opened.success().stdout_text().contains("unlocked"));
    let line = cryptline(["table", &target]).success().stdout_text();
    assert!(line.contains(&target), "{line}");
    let volume = open(&[&target, "--key-file", key]);
    let mut read = vec![0; 8192];
    blocking(&volume).read_at(4096 * 5, &mut read).unwrap();
    assert_eq!(read, vec![0x77; 8192]);
    // Nobody else may have it meanwhile.
    refused(btt(&["check"], &path), 5, "in use");
}

#[test]
fn luks_volume_lies_on_a_mapped_file() {
    let folder = Folder::new();
    let image = folder.luks2();
    let key = folder.key();
    let key = key.to_str().unwrap();
    let target = format!("pmem:{}", image.display());
    let volume = open(&[&target, "--key-file", key]);
    assert_eq!(volume.info().base.to_string(), "page cache (msync)");
    let data: Vec<u8> = (1..=249).cycle().take(4096 * 24).collect();
    blocking(&volume).write_at(4096, &data, true).unwrap();
    drop(volume);
    let mut read = vec![0; data.len()];
    let volume = open(&[image.to_str().unwrap(), "--key-file", key]);
    blocking(&volume).read_at(4096, &mut read).unwrap();
    assert!(read == data);
}

#[test]
fn mapped_file_that_is_cut_short_fails_requests_and_not_the_program() {
    let folder = Folder::new();
    for target in ["pmem", "btt"] {
        let path = table(&folder, "4096");
        let line = format!("0 24000 crypt aes-xts-plain64 {KEY} 0 {target}:{} 0 1 sector_size:4096", path.display());
        let volume = open(&["--table", &line]);
        let mut disk = blocking(&volume);
        disk.write_at(0, &[1; 4096 * 16], true).unwrap();
        resize(&path, 8192);
        let mut read = vec![0; 4096];
        let fault = disk.read_at(512 * 1024, &mut read).unwrap_err();
        assert_eq!(fault.to_string(), "the image was cut short while it was open");
        assert!(disk.write_at(512 * 1024, &[1; 4096], true).is_err());
        assert!(disk.flush().is_err());
        drop((disk, volume));
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn cipher_sectors_larger_than_the_tables_are_warned_of() {
    let folder = Folder::new();
    let path = table(&folder, "512");
    let line = format!("{} 1 sector_size:4096", line_of(&path, 8000));
    let volume = open(&["--table", &line]);
    assert_eq!(volume.warnings().len(), 1);
    assert!(matches!(volume.warnings()[0], Warning::TornSectors { .. }), "{:?}", volume.warnings());
}

#[test]
fn cipher_sectors_smaller_than_the_tables_are_refused() {
    let folder = Folder::new();
    let path = table(&folder, "4096");
    let run = cryptline(["serve", "--table", &line_of(&path, 8000), "--run", "true"]);
    refused(run, 4, "4096");
}

#[test]
fn bad_info_block_is_told_when_opened_and_repaired_when_asked() {
    let folder = Folder::new();
    let path = table(&folder, "512");
    let whole = fs::read(&path).unwrap();
    for (offset, word) in [(4096 + 60, "second"), (INFO_COPY + 60, "first")] {
        put(&path, offset, b"x");
        let volume = open(&["--table", &line_of(&path, 32202)]);
        assert!(matches!(volume.warnings()[0], Warning::Btt(_)), "{:?}", volume.warnings());
        drop(volume);
        assert_eq!(json(&["info"], &path)["arenas"][0]["info_block"], word);
        let told = btt(&["check"], &path).exited_with(4).stderr_text();
        assert!(told.contains("1 problems; --repair"), "{told}");
        assert_eq!(json(&["check"], &path)["problem_count"], 1);
        let said = btt(&["check", "--repair"], &path).success().stdout_text();
        assert!(said.contains("repaired: arena 0"), "{said}");
        assert!(fs::read(&path).unwrap() == whole);
    }
}

#[test]
fn damage_without_one_right_answer_is_told_and_left() {
    let folder = Folder::new();
    let path = table(&folder, "512");
    // Sectors 3 and 4 in block 9, which is also sector 9's; sector 5 nowhere.
    put(&path, MAP + 12, &0xc000_0009u32.to_le_bytes());
    put(&path, MAP + 16, &0xc000_0009u32.to_le_bytes());
    put(&path, MAP + 20, &0xffff_ffffu32.to_le_bytes());
    let before = fs::read(&path).unwrap();
    let run = btt(&["check", "--repair"], &path);
    let text = run.stdout_text();
    assert!(text.contains("sector 4 is in block 9, which is another"), "{text}");
    assert!(text.contains("sector 5 is in block 1073741823"), "{text}");
    assert!(text.contains("blocks belong to no sector"), "{text}");
    let run = run.exited_with(4);
    assert!(run.stderr_text().contains("no one right answer"), "{run}");
    assert!(fs::read(&path).unwrap() == before);
    // The log: lane 2's sequence number.
    put(&path, FLOG + 2 * 64 + 12, &7u32.to_le_bytes());
    let run = cryptline(["serve", "--table", &line_of(&path, 100), "--run", "true"]);
    refused(run, 4, "lane 2");
}

#[test]
fn what_is_no_table_is_refused_with_what_to_do() {
    let folder = Folder::new();
    let path = table(&folder, "512");
    let whole = fs::read(&path).unwrap();
    let refusal = |text: &str| {
        for verb in ["info", "check"] {
            refused(btt(&[verb], &path), 4, text);
        }
        let run = cryptline(["serve", "--table", &line_of(&path, 100), "--run", "true"]);
        refused(run, 4, text);
    };
    resize(&path, whole.len() as u64 - 4096);
    refusal("cut short");
    fs::write(&path, &whole).unwrap();
    put(&path, 4096 + 60, b"x");
    put(&path, INFO_COPY + 60, b"x");
    refusal("and so is its copy");
    fs::write(&path, vec![0; 32 << 20]).unwrap();
    refusal("holds no BTT");
    fs::write(&path, []).unwrap();
    refusal("give it a size first");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refusal("a directory");
    refused(btt(&["info"], Path::new("/dev/null")), 4, "nor a block or DAX device");
    refused(btt(&["info"], Path::new("/nowhere/x")), 4, "/nowhere/x");
}

#[test]
fn parameters_that_make_no_table_are_refused() {
    let folder = Folder::new();
    let path = folder.path("new.btt");
    refused(btt(&["create"], &path), 1, "give --size");
    refused(btt(&["create", "--size=16M"], &path), 1, "16781312");
    refused(btt(&["create", "--size=1G", "--sector-size=520"], &path), 1, "512 or 4096");
    let run = btt(&["create", "--size=1G", "--uuid=1234"], &path).exited_with(1);
    assert!(run.stderr_text().contains("no UUID"), "{run}");
    assert!(!path.exists());
    fs::write(&path, []).unwrap();
    refused(btt(&["create", "--size=1G"], &path), 5, "exists");
    refused(btt(&["create", "--force"], &path), 4, "give it a size first");
    let target = format!("pmem:{}", path.display());
    let run = cryptline(["serve", &target, "--run", "true"]);
    refused(run, 4, "give it a size first");
    resize(&path, 1 << 20);
    let run = cryptline(["serve", &target, "--direct=on", "--run", "true"]);
    refused(run, 1, "leave out --direct on");
}

/// A table of more than 512 GiB has several arenas; the file is sparse.
#[test]
fn table_of_several_arenas_is_made_and_used() {
    let folder = Folder::new();
    let path = folder.path("huge.btt");
    let _ = btt(&["create", "--size=1025G"], &path).success();
    let info = json(&["info"], &path);
    assert_eq!(info["arenas"].as_array().unwrap().len(), 3);
    let border = info["arenas"][0]["sectors"].as_u64().unwrap() * 4096;
    let sectors = info["data_size"].as_u64().unwrap() / 512;
    let line = format!("{} 1 sector_size:4096", line_of(&path, sectors));
    let volume = open(&["--table", &line]);
    let mut disk = blocking(&volume);
    disk.write_at(border - 8192, &[3; 16384], true).unwrap();
    let mut read = [0; 16384];
    disk.read_at(border - 8192, &mut read).unwrap();
    assert_eq!(read, [3; 16384]);
}

/// PBKDF2 at next to no cost.
const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];

fn create_on(folder: &Folder, target: &str, options: &[&str]) -> cryptline_testkit::peer::Run {
    let mut command = command();
    command.args(["create", target, "--key-file"]).arg(folder.key());
    run(command.args(CHEAP).args(options), std::time::Duration::from_secs(60))
}

fn table_of(folder: &Folder, sector_size: &str, size: &str) -> (PathBuf, String) {
    let path = folder.path("luks.btt");
    let mut command = command();
    command.args(["btt", "create"]).arg(&path);
    command.args(["--size", size, "--sector-size", sector_size]);
    let _ = run(&mut command, std::time::Duration::from_secs(60)).success();
    let target = format!("btt:{}", path.display());
    (path, target)
}

#[test]
fn luks_volume_is_made_on_a_table_and_keeps_what_is_written_to_it() {
    for (sector_size, expected) in [("512", 512), ("4096", 4096)] {
        let folder = Folder::new();
        let (path, target) = table_of(&folder, sector_size, "40M");
        let made = create_on(&folder, &target, &[]).success();
        assert!(made.stdout_text().contains("LUKS2"), "{made}");
        assert_eq!(made.stderr_text(), "");
        let key = folder.key();
        let key = key.to_str().unwrap();
        let data: Vec<u8> = (0..64 * 1024_u32).map(|at| at.to_le_bytes()[1]).collect();
        {
            let volume = open(&[&target, "--key-file", key]);
            assert_eq!(volume.info().sector_size, expected);
            let mut disk = blocking(&volume);
            disk.write_at(8192, &data, true).unwrap();
        }
        let volume = open(&[&target, "--key-file", key]);
        let mut found = vec![0; data.len()];
        blocking(&volume).read_at(8192, &mut found).unwrap();
        assert!(found == data);
        drop(volume);
        assert_eq!(json(&["check"], &path)["sound"], true);
    }
}

#[test]
fn device_that_holds_something_is_kept_unless_forced_and_unless_the_new_volume_can_be() {
    let folder = Folder::new();
    let (path, target) = table_of(&folder, "4096", "40M");
    let _ = create_on(&folder, &target, &[]).success();
    let before = fs::read(&path).unwrap();
    refused(create_on(&folder, &target, &[]), 5, "--force");
    for (options, why) in [
        (&["--force", "--cipher=rot13-cbc-plain"][..], "rot13"),
        (&["--force", "--sector-size=512"], "sectors of 4096"),
        (&["--force", "--size=1G"], "leave out --size"),
    ] {
        let run = create_on(&folder, &target, options);
        assert!(!run.status.success(), "{run}");
        assert!(run.stderr_text().contains(why), "{run}");
    }
    assert!(fs::read(&path).unwrap() == before, "something was written");
    let _ = create_on(&folder, &target, &["--force", "--luks1", "--sector-size=512"]);
    let _ = create_on(&folder, &target, &["--force", "--label=again"]).success();
    fs::remove_file(&path).unwrap();
    let (_, small) = table_of(&folder, "512", "16388K");
    refused(create_on(&folder, &small, &[]), 4, "too small");
}
