//! A passphrase typed at the terminal, without echo, into locked memory at once: a library's line buffer
//! would keep copies.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};

use cryptline::luks::PASSPHRASE_LEN_MAX;
use cryptline_sys::SecretBuf;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroize;

/// Longest line, in bytes: as the kernel's own.
const LINE_MAX: usize = 4095;

const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const KILL: u8 = 0x15;
const QUIT: u8 = 0x1c;
const DELETE: u8 = 0x7f;

/// Asks on the terminal and returns the line without its end.
///
/// # Errors
/// Without a terminal; `Interrupted` for Ctrl-C, `UnexpectedEof` where the terminal is gone or the line
/// is empty and ended by Ctrl-D.
pub fn ask(question: &str) -> io::Result<SecretBuf> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let quiet = Quiet::new(terminal.try_clone()?)?;
    terminal.write_all(question.as_bytes())?;
    let line = read_line(&mut terminal);
    drop(quiet);
    terminal.write_all(b"\n")?;
    line
}

/// A line of what is no terminal, without its end, and not a byte more: the next line may be for somebody else.
///
/// # Errors
/// `UnexpectedEof` where there is nothing.
pub fn line_of(mut input: impl Read) -> io::Result<SecretBuf> {
    let mut line = SecretBuf::zeroed(LINE_MAX)?;
    let mut len = 0;
    loop {
        if len == line.len() {
            let mut longer = SecretBuf::zeroed(2 * len)?;
            longer[..len].copy_from_slice(&line);
            line = longer;
        }
        match input.read(&mut line[len..=len]) {
            Ok(0) if len == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(0) => break,
            Ok(_) if line[len] == b'\n' => break,
            Ok(_) if len == PASSPHRASE_LEN_MAX => {
                return Err(io::Error::other("it is longer than 8M"));
            }
            Ok(_) => len += 1,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    SecretBuf::copy_of(&line[..len])
}

/// Asks on the terminal what is no secret.
///
/// # Errors
/// Without a terminal.
pub fn ask_aloud(question: &str) -> io::Result<String> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    terminal.write_all(question.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(terminal).read_line(&mut answer)?;
    Ok(answer)
}

/// Byte by byte, so that keys which a terminal would handle itself are handled here: Ctrl-C must not
/// leave it without echo.
fn read_line(terminal: &mut impl Read) -> io::Result<SecretBuf> {
    let mut line = SecretBuf::zeroed(LINE_MAX)?;
    let mut key = SecretBuf::zeroed(1)?;
    let mut len = 0;
    loop {
        match terminal.read(&mut key) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => _ = read?,
        }
        match key[0] {
            b'\n' | b'\r' => break,
            END if len == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            END => break,
            INTERRUPT | QUIT => return Err(io::ErrorKind::Interrupted.into()),
            KILL => {
                line[..len].zeroize();
                len = 0;
            }
            BACKSPACE | DELETE => len = without_last(&line[..len]),
            byte if len < LINE_MAX => {
                line[len] = byte;
                len += 1;
            }
            _ => return Err(io::Error::other("more than 4095 bytes were typed")),
        }
    }
    SecretBuf::copy_of(&line[..len])
}

/// The length without the last character (UTF-8: what continues one goes with it).
fn without_last(line: &[u8]) -> usize {
    let is_start = |byte: &u8| byte & 0xc0 != 0x80;
    line.iter().rposition(is_start).unwrap_or(0)
}

/// A terminal that shows nothing and passes every key on, until dropped.
struct Quiet {
    terminal: File,
    before: Termios,
}

impl Quiet {
    fn new(terminal: File) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut modes = before.clone();
        modes
            .local_modes
            .remove(LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        // What was typed ahead would have been echoed, so it is no passphrase.
        tcsetattr(&terminal, OptionalActions::Flush, &modes)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Flush, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(mut keys: &[u8]) -> Result<Vec<u8>, io::ErrorKind> {
        let line = read_line(&mut keys).map_err(|error| error.kind());
        line.map(|line| line.to_vec())
    }

    #[test]
    fn a_line_ends_with_enter_or_ctrl_d() {
        assert_eq!(typed(b"pass phrase\nrest"), Ok(b"pass phrase".to_vec()));
        assert_eq!(typed(b"pass\x04"), Ok(b"pass".to_vec()));
        assert_eq!(typed(b"\r"), Ok(Vec::new()));
    }

    #[test]
    fn keys_that_correct_are_followed() {
        assert_eq!(typed(b"wrong\x15right\n"), Ok(b"right".to_vec()));
        let umlaut = "pä\u{7f}\u{8}\u{8}\u{8}no\n";
        assert_eq!(typed(umlaut.as_bytes()), Ok(b"no".to_vec()));
    }

    #[test]
    fn line_of_a_pipe_ends_at_its_newline_or_the_end() {
        let mut input = &b"one\n\ntw\x03o"[..];
        assert_eq!(*line_of(&mut input).unwrap(), *b"one");
        assert_eq!(*line_of(&mut input).unwrap(), *b"");
        assert_eq!(*line_of(&mut input).unwrap(), *b"tw\x03o");
        let none = line_of(&mut input).err().unwrap();
        assert_eq!(none.kind(), io::ErrorKind::UnexpectedEof);
        let long = vec![b'x'; 3 * LINE_MAX];
        assert_eq!(*line_of(&long[..]).unwrap(), long[..]);
        let longer = vec![b'x'; PASSPHRASE_LEN_MAX + 1];
        assert!(line_of(&longer[..]).is_err());
    }

    #[test]
    fn ctrl_c_and_a_terminal_that_is_gone_give_no_passphrase() {
        assert_eq!(typed(b"pass\x03"), Err(io::ErrorKind::Interrupted));
        assert_eq!(typed(b"\x04"), Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(typed(b"pass"), Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(typed(&[b'x'; 5000]), Err(io::ErrorKind::Other));
    }
}
