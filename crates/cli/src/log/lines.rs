//! Form of a line. Whatever is in a message, such as a name that a client has sent, a line is one line.

use std::fmt::Write as _;
use std::time::SystemTime;

use serde_json::{Map, Value};
use tracing::Level;

use super::time::utc;
use crate::error::on_one_line;

/// The form of all lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineForm {
    /// `cryptline: message`
    Plain,
    /// `2026-11-23T23:16:02.123Z WARN message`
    Dated,
    /// `<4>message`, as sd-daemon(3) has it: the journal knows the time.
    Journal,
    /// `{"time":...,"level":"warn","message":...}` and the fields.
    Json,
}

/// Message to be written.
pub struct LogLine<'a> {
    /// How bad it is.
    pub level: Level,
    /// Set if it warns whoever started the program.
    pub is_warning: bool,
    /// For people.
    pub message: &'a str,
    /// For programs.
    pub fields: Map<String, Value>,
}

impl LogLine<'_> {
    /// The whole line, with its end.
    pub fn text(self, form: LineForm, now: SystemTime) -> String {
        let message = on_one_line(self.message);
        match form {
            LineForm::Plain if self.is_warning => format!("cryptline: warning: {message}\n"),
            LineForm::Plain => format!("cryptline: {message}\n"),
            LineForm::Dated => format!("{} {:<5} {message}\n", utc(now), self.level.as_str()),
            LineForm::Journal => format!("<{}>{message}\n", priority(self.level)),
            LineForm::Json => self.json(now),
        }
    }

    fn json(self, now: SystemTime) -> String {
        let mut object = Map::new();
        let level = self.level.as_str().to_ascii_lowercase();
        object.insert("time".to_owned(), utc(now).into());
        object.insert("level".to_owned(), level.into());
        object.insert("message".to_owned(), self.message.into());
        object.extend(self.fields);
        in_ascii_controls(&Value::Object(object).to_string()) + "\n"
    }
}

/// syslog(3)'s.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// JSON lets more characters than these stand in a text, some of which end lines or move the cursor of a terminal. They
/// can only be in texts, so they are escaped as texts have them.
fn in_ascii_controls(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
            // All of them have four digits. Writing to a String does not fail.
            let _ = write!(line, "\\u{:04x}", u32::from(character));
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    /// Name that a client may send.
    const HOSTILE: &str = "a\ncryptline: b\r\u{1b}[2J\u{85}\u{9b}2J\u{2028}<0>\"}{\"x\":1";

    fn text(form: LineForm, level: Level, is_warning: bool, message: &str) -> String {
        let fields = [("client".to_owned(), 3.into())].into_iter().collect();
        let line = LogLine { level, is_warning, message, fields };
        line.text(form, UNIX_EPOCH)
    }

    #[test]
    fn each_form_says_what_its_reader_does_not_know() {
        let warn = |form| text(form, Level::WARN, false, "m");
        assert_eq!(warn(LineForm::Plain), "cryptline: m\n");
        assert_eq!(warn(LineForm::Dated), "1970-01-01T00:00:00.000Z WARN  m\n");
        assert_eq!(warn(LineForm::Journal), "<4>m\n");
        assert_eq!(
            warn(LineForm::Json),
            "{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"warn\",\"message\":\"m\",\"client\":3}\n"
        );
        let warning = text(LineForm::Plain, Level::WARN, true, "m");
        assert_eq!(warning, "cryptline: warning: m\n");
        assert_eq!(text(LineForm::Journal, Level::ERROR, false, "m"), "<3>m\n");
        assert_eq!(text(LineForm::Journal, Level::INFO, false, "m"), "<6>m\n");
    }

    #[test]
    fn hostile_names_stay_in_their_line_and_come_through_json_whole() {
        for form in [LineForm::Plain, LineForm::Dated, LineForm::Journal, LineForm::Json] {
            let line = text(form, Level::INFO, false, HOSTILE);
            let inside = line.strip_suffix('\n').unwrap();
            let ends = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
            assert!(!inside.contains(ends), "{form:?}: {inside:?}");
        }
        let line = text(LineForm::Json, Level::INFO, false, HOSTILE);
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["message"], HOSTILE);
        assert_eq!(read.as_object().unwrap().len(), 4);
    }
}
