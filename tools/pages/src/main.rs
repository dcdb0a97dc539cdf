//! `cryptline-pages FOLDER` writes the man pages and completions into a folder, which is made if it is missing.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [folder] = &arguments[..] else {
        eprintln!("usage: cryptline-pages FOLDER");
        return ExitCode::from(2);
    };
    let folder = Path::new(folder);
    match write(folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cryptline-pages: {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, text) in cryptline_pages::files()? {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}
