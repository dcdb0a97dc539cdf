//! From tracing's events to lines. `tracing-subscriber` would do it with more crates than this has functions: a
//! registry of spans, filters and a clock, none of which is wanted here.

use std::fmt::Debug;
use std::sync::Mutex;
use std::time::SystemTime;

use cryptline_sys::lock;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Event, Level, Metadata};

use super::lines::{LineForm, LogLine};
use super::outlet::LogOutlet;

/// Not the lock of the library: a panic holds that one for as long as nobody reads what it says.
static OUTLET: Mutex<LogOutlet> = Mutex::new(LogOutlet::new());

/// Prints events to standard error. There are no spans.
pub struct LineSubscriber;

impl Subscriber for LineSubscriber {
    /// Each time anew, since lines may be said before it is known which are wanted.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && super::is_on(*metadata.level())
    }

    fn event(&self, event: &Event<'_>) {
        let mut said = EventContents::default();
        event.record(&mut said);
        let metadata = event.metadata();
        let line = LogLine {
            level: *metadata.level(),
            is_warning: metadata.target() == super::WARNING,
            message: &said.message,
            fields: said.fields,
        };
        let now = SystemTime::now();
        let settings = super::settings();
        let text = line.text(settings.form, now);
        let notice = |count| notice_of_dropped(count, settings.form, now);
        let to = rustix::stdio::stderr();
        lock(&OUTLET).write(to, &text, settings.patience, notice);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The line in place of those that were dropped.
fn notice_of_dropped(count: u64, form: LineForm, now: SystemTime) -> String {
    let message = format!("log messages dropped before this one, since they could not be written: {count}");
    let fields = [("event", "dropped".into()), ("lines", count.into())];
    let fields = fields.map(|(name, value): (&str, Value)| (name.to_owned(), value));
    let line =
        LogLine { level: Level::WARN, is_warning: false, message: &message, fields: fields.into_iter().collect() };
    line.text(form, now)
}

/// Contents of an event.
#[derive(Default)]
struct EventContents {
    message: String,
    fields: Map<String, Value>,
}

impl EventContents {
    fn keep(&mut self, field: &Field, value: Value) {
        self.fields.insert(field.name().to_owned(), value);
    }
}

impl Visit for EventContents {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.keep(field, text.into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.keep(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.keep(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.keep(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.keep(field, value.into());
    }
}
