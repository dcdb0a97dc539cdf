//! Where a report goes. Checked before anything is measured, and written only when everything is: a file appears whole or
//! not at all, and what is there but no regular file, such as `/dev/stderr`, is written to.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use tempfile::NamedTempFile;

use crate::error::{Of as _, Result, fail};
use crate::report::PlanReport;
use crate::text;

/// The page without its report.
const PAGE: &str = include_str!("page.html");

/// `--json`, `--html` and `--goals`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output options")]
pub struct OutputArgs {
    /// Write JSON to FILE; `-` for standard output, and then the text goes to standard error
    #[arg(long, value_name = "FILE", global = true)]
    pub json: Option<PathBuf>,

    /// Write one self-contained page that draws it to FILE
    #[arg(long, value_name = "FILE", global = true)]
    pub html: Option<PathBuf>,

    /// Say which figures reach the goals of this project, for its developers; the JSON always does
    #[arg(long, global = true)]
    pub goals: bool,
}

impl OutputArgs {
    /// Measures, and writes and prints the report. What cannot be written is not measured.
    pub fn of(&self, measure: impl FnOnce() -> Result<PlanReport>) -> Result<()> {
        let json_file = self.json.as_deref().filter(|path| *path != Path::new("-"));
        let html_file = self.html.as_deref();
        for (option, path) in [("--json", json_file), ("--html", html_file)] {
            if let Some(path) = path {
                let probed = Sink::open(path).map(drop);
                probed.of(format_args!("{option} {}: nothing was measured", path.display()))?;
            }
        }
        if let Some(both) = json_file.filter(|json| Some(*json) == html_file) {
            fail!("--json and --html both name {}; use two files", both.display());
        }
        let mut report = measure()?;
        report.finish();
        let json = serde_json::to_string_pretty(&report)? + "\n";
        let text = text::render(&report, self.goals);
        if let Some(path) = json_file {
            write("--json", path, &json)?;
        }
        if let Some(path) = html_file {
            write("--html", path, &page(&json, self.goals))?;
        }
        let json_to_stdout = self.json.is_some() && json_file.is_none();
        let [stdout, stderr] = if json_to_stdout { [json.as_str(), &text] } else { [text.as_str(), ""] };
        // Nobody is left to be told when this fails.
        let _ = io::stderr().write_all(stderr.as_bytes());
        match io::stdout().write_all(stdout.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                fail!("cannot write to standard output: {error}")
            }
            _ => {}
        }
        report.warnings.iter().for_each(|warning| eprintln!("cryptline-bench: warning: {warning}"));
        Ok(())
    }
}

/// The page of a report. Nothing in its JSON ends the script that it is in.
fn page(json: &str, goals: bool) -> String {
    PAGE.replace("\"GOALS\"", if goals { "true" } else { "false" }).replace("\"REPORT\"", &json.replace('<', "\\u003c"))
}

/// A file in the making.
enum Sink {
    /// Comes to its place by renaming: the target of a symbolic link.
    Draft(NamedTempFile, PathBuf),
    /// Written to in place.
    Special(File),
}

impl Sink {
    fn open(path: &Path) -> io::Result<Self> {
        let place = match fs::metadata(path) {
            // An existing file that may not be written is not replaced either.
            Ok(_) => {
                let there = File::options().append(true).open(path)?;
                if !there.metadata()?.is_file() {
                    return Ok(Self::Special(there));
                }
                fs::canonicalize(path)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.file_name().is_some() => path.to_owned(),
            Err(error) => return Err(error),
        };
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut new = tempfile::Builder::new();
        let new = new.prefix(".cryptline-bench-").permissions(fs::Permissions::from_mode(0o666));
        Ok(Self::Draft(new.tempfile_in(folder)?, place))
    }
}

fn write(option: &str, path: &Path, text: &str) -> Result<()> {
    let written = Sink::open(path).and_then(|sink| match sink {
        Sink::Draft(mut file, place) => {
            file.write_all(text.as_bytes())?;
            file.persist(&place).map(drop).map_err(io::Error::from)
        }
        Sink::Special(mut file) => file.write_all(text.as_bytes()),
    });
    written.of(format_args!("{option} {}: cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_known_before_and_a_probe_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in [folder.path().to_owned(), folder.path().join("no/such/x.json"), "".into(), "/".into()] {
            assert!(Sink::open(&path).is_err(), "{}", path.display());
        }
        assert!(matches!(Sink::open(Path::new("/dev/null")), Ok(Sink::Special(_))));
        let path = folder.path().join("report.json");
        drop(Sink::open(&path).expect("can be written"));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
        let same = OutputArgs { json: Some(path.clone()), html: Some(path), goals: false };
        let error = same.of(|| panic!("nothing is measured")).expect_err("one file");
        assert!(error.to_string().contains("two files"), "{error}");
    }

    #[test]
    fn a_written_file_is_whole_and_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report.json");
        fs::write(&path, "a much longer text than the new one").expect("room");
        write("--json", &path, "new").expect("room");
        assert_eq!(fs::read_to_string(&path).expect("there"), "new");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn what_users_give_is_no_markup_and_the_page_needs_nothing_from_elsewhere() {
        let report = PlanReport { medium: "\"></script><img>".into(), ..PlanReport::default() };
        let page = page(&serde_json::to_string(&report).expect("JSON"), true);
        assert!(page.contains("\\u003c/script>\\u003cimg>") && !page.contains("<img>"));
        for word in ["http://", "https://", "src=", "@import", "url(", "innerHTML", "REPORT"] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
