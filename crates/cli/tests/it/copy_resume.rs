//! `copy --resume`, killed anywhere: the next run ends in the same bytes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;

/// Nothing here takes longer.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Wherever the kills come, what they leave is judged the same way; a loaded machine only moves them.
#[test]
fn killed_at_any_moment_the_next_run_ends_in_the_same_bytes() {
    let folder = Folder::new();
    let (raw, luks) = (folder.path("raw"), folder.path("luks"));
    let mut bytes: Vec<u8> =
        (0..48_u32 << 18).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    bytes[..1 << 20].fill(0);
    bytes[9 << 20..21 << 20].fill(0);
    fs::write(&raw, &bytes).unwrap();
    let key = format!("--key-file={}", folder.key().display());
    let made = ["create", luks.to_str().unwrap(), "--from", raw.to_str().unwrap(), &key];
    cryptline([&made[..], &CHEAP].concat()).success();
    for (source, options) in [(&raw, &[][..]), (&luks, &[&*key][..])] {
        let out = folder.path("out");
        let mut copy = command();
        copy.arg("copy").arg(source).arg(&out).arg("--resume");
        copy.args(options);
        killed_until_marked(&folder, &copy, &|| fs::read(&out).unwrap() == bytes);
    }
    // A volume that is filled goes on under the header and the key that it was begun with.
    for options in [&["--preallocate", "--verify"][..], &["--holes=keep"]] {
        let out = folder.path("out");
        let mut create = command();
        create.arg("create").arg(&out).arg("--from").arg(&raw);
        create.args(["--resume", &key]).args(options).args(CHEAP);
        killed_until_marked(&folder, &create, &|| {
            let clear = folder.path("clear");
            cryptline(["copy", out.to_str().unwrap(), clear.to_str().unwrap(), &key]).success();
            let is_same = fs::read(&clear).unwrap() == bytes;
            fs::remove_file(clear).unwrap();
            is_same && fs::metadata(&out).unwrap().len() == (16 + 48) << 20
        });
    }
}

/// Runs what makes the file `out`, and kills it at one moment after the other, and then as soon as it has marked
/// something for the next run. Each time the run that ends has ended in the right file.
fn killed_until_marked(folder: &Folder, verb: &Command, is_whole: &dyn Fn() -> bool) {
    let (out, part) = (folder.path("out"), folder.path(".out.cryptline-part"));
    // Until a run ends by itself. How many had marked something when they were killed?
    let run_to_its_end = |is_time: &dyn Fn(u32, Duration) -> bool| {
        let mut marked = 0;
        for kills in 0.. {
            if run_until(verb, &|since| is_time(kills, since)) {
                assert!(is_whole());
                break;
            }
            // Whatever has the name is whole.
            assert!(!out.exists() || is_whole());
            let _ = fs::remove_file(&out);
            marked += u32::from(mark_of(&part) > 0);
        }
        fs::remove_file(&out).unwrap();
        marked
    };
    // 2 ms, and a fifth more each time.
    let later_each_time = |kills: u32, since: Duration| {
        since >= Duration::from_millis(2).mul_f64(1.2_f64.powi(i32::try_from(kills).unwrap()))
    };
    run_to_its_end(&later_each_time);
    let once_marked = |kills: u32, _: Duration| kills < 3 && mark_of(&part) > 0;
    let marked = (0..20).find(|_| run_to_its_end(&once_marked) > 0);
    assert!(marked.is_some(), "no kill left anything behind");
    let left = fs::read_dir(folder.root()).unwrap();
    let left = left.filter(|it| {
        let name = it.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with('.')
    });
    assert_eq!(left.count(), 0);
}

/// Runs the program until `is_time` to kill it, which is asked all the time. Whether it has ended well before.
fn run_until(verb: &Command, is_time: &dyn Fn(Duration) -> bool) -> bool {
    let mut again = command();
    again.args(verb.get_args());
    let mut child = again.stdout(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        if is_time(began.elapsed()) {
            child.kill().unwrap();
            return child.wait().unwrap().success();
        }
        assert!(began.elapsed() < TIMEOUT, "it hangs");
    }
}

/// How far an unfinished copy says that it has come: the mark of its newer record.
fn mark_of(part: &Path) -> u64 {
    let mut bytes = [0; 8192];
    let tail = File::open(part).and_then(|part| {
        let end = part.metadata()?.len();
        part.read_exact_at(&mut bytes, end.saturating_sub(8192))
    });
    let records = bytes.chunks(4096).filter(|_| tail.is_ok());
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
    let apart = folder.path("header");
    let apart = format!("--header={}", apart.display());
    let create = ["create", out, "--from", image, "--resume", &key, &apart];
    cryptline(create).exited_with(1);
    refused(cryptline(["copy", "-", out, "--resume"]), 1, "leave out --resume");
    let raw = folder.path("raw");
    fs::write(&raw, [7; 4096]).unwrap();
    let to_key = format!("--to-key-file={}", folder.key().display());
    let into = ["copy", raw.to_str().unwrap(), image, "--resume", &to_key];
    refused(cryptline(into), 1, "leave out --resume");
    assert!(!folder.path("out").exists());
    assert!(!folder.path(".out.cryptline-part").exists());
}
