//! `copy --resume`, killed anywhere: the next run ends in the same bytes.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::*;
use cryptline_testkit::peer::Background;
use rustix::process::Signal;

/// Nothing here takes longer.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Wherever the kills come, what they leave is judged the same way; a loaded machine only moves them.
#[test]
fn killed_at_any_moment_the_next_run_ends_in_the_same_bytes() {
    let folder = Folder::new();
    let (raw, luks) = (folder.path("raw"), folder.path("luks"));
    let mut bytes: Vec<u8> = (0..48_u32 << 18)
        .flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    bytes[..1 << 20].fill(0);
    bytes[9 << 20..21 << 20].fill(0);
    fs::write(&raw, &bytes).unwrap();
    let key = format!("--key-file={}", folder.key().display());
    let cheap = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
    let made = [
        "create",
        luks.to_str().unwrap(),
        "--from",
        raw.to_str().unwrap(),
        &key,
    ];
    cryptline([&made[..], &cheap].concat()).success();
    for (source, options) in [(&raw, &[][..]), (&luks, &[&*key][..])] {
        let out = folder.path("out");
        let mut copy = command();
        copy.arg("copy").arg(source).arg(&out).arg("--resume");
        copy.args(options);
        killed_until_marked(&folder, &copy, &|| fs::read(&out).unwrap() == bytes);
        fs::remove_file(&out).unwrap();
    }
    // A volume that is filled goes on under the header and the key that it was begun with.
    for option in ["--preallocate", "--holes=keep"] {
        let out = folder.path("out");
        let mut create = command();
        create.arg("create").arg(&out).arg("--from").arg(&raw);
        create.args(["--resume", option, &key]).args(cheap);
        killed_until_marked(&folder, &create, &|| {
            let clear = folder.path("clear");
            cryptline(["copy", out.to_str().unwrap(), clear.to_str().unwrap(), &key]).success();
            let is_same = fs::read(&clear).unwrap() == bytes;
            fs::remove_file(clear).unwrap();
            is_same && fs::metadata(&out).unwrap().len() == (16 + 48) << 20
        });
        fs::remove_file(&out).unwrap();
    }
}

/// Runs what makes the file `out`, and kills it at one moment after the other, until one run was killed that had marked
/// something for the next, and has ended in the right file.
fn killed_until_marked(folder: &Folder, verb: &Command, is_whole: &dyn Fn() -> bool) {
    let (out, part) = (folder.path("out"), folder.path(".out.cryptline-part"));
    let run = |wait: Duration| {
        let mut again = command();
        again.args(verb.get_args());
        let mut process = Background::spawn(&mut again);
        if process.wait(wait).is_none() {
            process.signal(Signal::KILL);
        }
        process.wait(TIMEOUT).expect("it ends").success()
    };
    // Runs that were killed, and those of them that had marked something for the next one.
    let (mut kills, mut marked, mut rounds) = (0, 0, 0);
    while marked == 0 {
        rounds += 1;
        assert!(rounds < 20, "of {kills} kills none left anything behind");
        let mut wait = Duration::from_millis(2);
        let _ = fs::remove_file(&out);
        while !run(wait) {
            // Whatever has the name is whole.
            assert!(!out.exists() || is_whole());
            let _ = fs::remove_file(&out);
            kills += 1;
            marked += u32::from(mark_of(&part) > 0);
            wait += wait / 6 + Duration::from_millis(2);
        }
        assert!(is_whole());
    }
    let left = fs::read_dir(folder.root()).unwrap();
    let left = left.filter(|it| {
        let name = it.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with('.')
    });
    assert_eq!(left.count(), 0);
}

/// How far an unfinished copy says that it has come: the mark of its newer record.
fn mark_of(part: &Path) -> u64 {
    let bytes = fs::read(part).unwrap_or_default();
    let records = bytes.rchunks(4096).take(2);
    let records = records.filter(|it| it.starts_with(b"cryptline copy 1"));
    let number = |it: &[u8], at: usize| u64::from_le_bytes(it[at..at + 8].try_into().unwrap());
    let newest = records.max_by_key(|it| number(it, 16));
    newest.map_or(0, |it| number(it, 32))
}

#[test]
fn resume_is_refused_where_it_cannot_be_kept() {
    let folder = Folder::new();
    let (image, out) = (folder.luks2(), folder.path("out"));
    let key = format!("--key-file={}", folder.key().display());
    let [image, out] = [&image, &out].map(|path| path.to_str().unwrap());
    let verified = ["copy", image, out, "--resume", &key, "--verify"];
    cryptline(verified).exited_with(1);
    refused(
        cryptline(["copy", "-", out, "--resume"]),
        1,
        "leave out --resume",
    );
    let raw = folder.path("raw");
    fs::write(&raw, [7; 4096]).unwrap();
    let to_key = format!("--to-key-file={}", folder.key().display());
    let into = ["copy", raw.to_str().unwrap(), image, "--resume", &to_key];
    refused(cryptline(into), 1, "leave out --resume");
    assert!(!folder.path("out").exists());
    assert!(!folder.path(".out.cryptline-part").exists());
}
