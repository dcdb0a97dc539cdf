//! Where a report goes. Checked before anything is measured, and written only when everything is.
//!
//! A file appears whole or not at all: it is written beside its place and then renamed. What is
//! there but no regular file, such as `/dev/stderr`, is written to.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use tempfile::NamedTempFile;

use crate::report::{Figure, Report};
use crate::{Error, html, text};

/// `--json`, `--html` and `--goals`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output options")]
pub struct Output {
    /// Write JSON to FILE; `-` for standard output, and then the table goes to standard error
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write one self-contained page with plots to FILE
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Say which figures reach the goals of this project, for its developers; the JSON always does
    #[arg(long)]
    pub goals: bool,
}

/// What is left to print.
#[derive(Debug, Default)]
pub struct Printed {
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// For standard error, after that.
    pub warnings: Vec<String>,
}

impl Output {
    /// Measures, and writes the files. What cannot be written is not measured.
    pub fn of(&self, measure: impl FnOnce() -> Result<Report, Error>) -> Result<Printed, Error> {
        self.check()?;
        let mut report = measure()?;
        report.finish();
        let explain = |report: &mut Report| report.figures.iter_mut().for_each(Figure::explain);
        if self.goals {
            explain(&mut report);
        }
        let text = text::render(&report, self.goals);
        let page = html::page(&report, self.goals);
        explain(&mut report);
        let json = serde_json::to_string_pretty(&report)
            .map_err(|error| Error::device(format!("cannot make the JSON: {error}")))?;
        let json = json + "\n";
        if let Some(path) = self.json_file() {
            write("--json", path, &json)?;
        }
        if let Some(path) = &self.html {
            write("--html", path, &page)?;
        }
        let json_to_stdout = self.json.is_some() && self.json_file().is_none();
        let (stdout, stderr) = if json_to_stdout { (json, text) } else { (text, String::new()) };
        Ok(Printed { stdout, stderr, warnings: report.warnings })
    }

    /// Whether both files can be written.
    fn check(&self) -> Result<(), Error> {
        if let Some(path) = self.json_file() {
            probe("--json", path)?;
        }
        if let Some(path) = &self.html {
            probe("--html", path)?;
        }
        match (self.json_file(), &self.html) {
            (Some(json), Some(html)) if json == html => {
                Err(Error::parameters(format!("--json and --html both name {}; give two files", json.display())))
            }
            _ => Ok(()),
        }
    }

    /// Where the JSON goes, unless to standard output.
    fn json_file(&self) -> Option<&Path> {
        let path = self.json.as_deref()?;
        (path != Path::new("-")).then_some(path)
    }
}

/// A file in the making.
enum Sink {
    /// Comes to its place by renaming: the target of a symbolic link.
    Draft(NamedTempFile, PathBuf),
    /// What is there is written to.
    Special(File),
}

impl Sink {
    fn open(path: &Path) -> io::Result<Self> {
        let append = || File::options().append(true).open(path);
        let place = match fs::metadata(path) {
            Ok(kind) if kind.is_dir() => Err(io::Error::from(ErrorKind::IsADirectory)),
            // An existing file that may not be written is not replaced either.
            Ok(kind) if kind.is_file() => append().and_then(|_| fs::canonicalize(path)),
            Ok(_) => return append().map(Self::Special),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(path.to_owned()),
            Err(error) => Err(error),
        }?;
        Ok(Self::Draft(beside(&place)?, place))
    }

    fn write(self, text: &str) -> io::Result<()> {
        match self {
            Self::Draft(mut file, place) => {
                file.write_all(text.as_bytes())?;
                file.persist(&place).map(drop).map_err(io::Error::from)
            }
            Self::Special(mut file) => file.write_all(text.as_bytes()),
        }
    }
}

fn probe(option: &str, path: &Path) -> Result<(), Error> {
    let tried = Sink::open(path).map(drop);
    tried.map_err(|error| {
        let path = path.display();
        Error::parameters(format!("{option} {path}: cannot be written: {error}; nothing was measured"))
    })
}

fn write(option: &str, path: &Path, text: &str) -> Result<(), Error> {
    let written = Sink::open(path).and_then(|sink| sink.write(text));
    written.map_err(|error| {
        let path = path.display();
        Error::device(format!("{option} {path}: cannot be written: {error}"))
    })
}

/// A temporary file in the same folder, with the permissions of any new file.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    if path.file_name().is_none() {
        return Err(io::Error::from(ErrorKind::InvalidFilename));
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(".cryptline-bench-")
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(json: &Path) -> Output {
        Output { json: Some(json.to_owned()), ..Output::default() }
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let bad = [folder.path().to_owned(), folder.path().join("no/such/x.json"), "".into()];
        for path in bad {
            let error = to(&path).check().expect_err("cannot be written");
            assert_eq!(error.kind(), cryptline::ErrorKind::Parameters);
            assert!(error.to_string().contains("--json"), "{error}");
        }
        assert!(to(Path::new("-")).check().is_ok());
        assert!(to(Path::new("/dev/null")).check().is_ok());
        let same = Output { json: Some(folder.path().join("x")), html: Some(folder.path().join("x")), goals: false };
        assert!(same.check().expect_err("one file").to_string().contains("two files"));
    }

    #[test]
    fn a_check_leaves_nothing_behind_and_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report.json");
        to(&path).check().expect("can be written");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
        fs::write(&path, "before").expect("room");
        to(&path).check().expect("can be written");
        assert_eq!(fs::read_to_string(&path).expect("there"), "before");
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
}
