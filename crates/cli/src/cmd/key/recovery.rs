//! `key add --recovery`: a random key for the day when every other one is lost.

use std::env;
use std::io::{self, IsTerminal};
use std::os::fd::BorrowedFd;

use cryptline::{Header, SecretBuf};
use qrcode::{Color, QrCode};
use zeroize::Zeroizing;

use crate::CliError;
use crate::output::{complain, warn_of};

/// Modules of white around a QR code.
const QUIET: usize = 4;

/// Adds it, and shows it on standard output: alone, for whoever wants it in a file, and on a terminal with a QR code.
pub fn add(header: Header, slot: Option<u32>) -> Result<(), CliError> {
    if is_null_device(rustix::stdio::stdout()) {
        return Err(CliError::parameters(
            "the recovery key is shown on standard output, which is discarded; send it to a terminal or a file",
        ));
    }
    let added = header.add_recovery_key(slot);
    let (edited, key) = added.map_err(CliError::of_header)?;
    warn_of(&edited.warnings);
    let slot = edited.slot.unwrap_or_default();
    show(&key).map_err(|error| {
        CliError::device(format!(
            "the recovery key of key slot {slot} could not be shown ({error}), so nobody knows it; remove it with `cryptline key kill` and add another"
        ))
    })?;
    complain(&format!("This recovery key unlocks key slot {slot}. It is shown only once: store it safely"));
    Ok(())
}

/// Also what stands in for a descriptor that was closed.
fn is_null_device(output: BorrowedFd<'_>) -> bool {
    let null = rustix::fs::makedev(1, 3);
    rustix::fs::fstat(output).is_ok_and(|found| found.st_rdev == null)
}

fn show(key: &SecretBuf) -> io::Result<()> {
    write(key)?;
    write(b"\n")?;
    if io::stdout().is_terminal() && terminal_has_blocks()
        // It is shown already, so without the code, too.
        && let Ok(code) = QrCode::new(&key[..])
    {
        write(drawn(&code).as_bytes())?;
    }
    Ok(())
}

/// Not through the buffer of standard output, which nobody wipes.
fn write(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Tells if the locale has the characters that the code is drawn with, and the terminal colours.
fn terminal_has_blocks() -> bool {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    let is_utf8 = locale.contains("utf-8") || locale.contains("utf8");
    is_utf8 && set("TERM").is_some_and(|term| term != "dumb")
}

/// Two rows of modules in each line, white on black whatever the colours of the terminal are.
fn drawn(code: &QrCode) -> Zeroizing<String> {
    let (colors, width) = (code.to_colors(), code.width());
    let side = width + 2 * QUIET;
    let is_white = |x: usize, y: usize| {
        let inside = |place: usize| place.checked_sub(QUIET).filter(|place| *place < width);
        inside(x).zip(inside(y)).is_none_or(|(x, y)| colors[y * width + x] == Color::Light)
    };
    // Enough from the start: a string that grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(side.div_ceil(2) * (3 * side + 16)));
    for y in (0..side).step_by(2) {
        text.push_str("\x1b[40;97m");
        for x in 0..side {
            text.push(match (is_white(x, y), is_white(x, y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
        }
        text.push_str("\x1b[0m\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawing_has_every_module_and_white_around() {
        let key = "cuuenful-bknhdtjd-lfkvgihu-jhlhthfv-dvvjnuer-inveljfr-dthjvgvn-rtflfnjv";
        let code = QrCode::new(key).unwrap();
        let text = drawn(&code);
        let mut rows = Vec::new();
        for line in text.lines() {
            let line = line.strip_prefix("\x1b[40;97m").unwrap();
            let line = line.strip_suffix("\x1b[0m").unwrap();
            rows.push(line.chars().map(|it| it == '█' || it == '▀').collect::<Vec<_>>());
            rows.push(line.chars().map(|it| it == '█' || it == '▄').collect());
        }
        let side = code.width() + 2 * QUIET;
        assert!(rows.iter().all(|row| row.len() == side) && rows.len() >= side);
        let expected = code.to_colors();
        for (y, row) in rows.iter().enumerate() {
            for (x, white) in row.iter().enumerate() {
                let is_inside = |place: usize| (QUIET..QUIET + code.width()).contains(&place);
                let dark =
                    is_inside(x) && is_inside(y) && expected[(y - QUIET) * code.width() + x - QUIET] == Color::Dark;
                assert_eq!(*white, !dark, "{x} {y}");
            }
        }
        // The first corner of a finder pattern is dark, and the ring inside it white.
        assert!(!rows[QUIET][QUIET] && rows[QUIET + 1][QUIET + 1]);
    }
}
