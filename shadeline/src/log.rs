//! Logs: to standard error, for people or as JSON lines, or for the journal. The level may change while the program runs.
//!
//! A service manager that reads standard error into the journal names that stream in `$JOURNAL_STREAM`. Then each line
//! begins with its priority in the form of the kernel's log (`<4>`, `sd-daemon(3)`), and a line of text has neither a
//! time nor a level of its own, which the journal keeps already.

use std::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use control::config::{LogFormat, LogLevel};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

/// Changes the level of the log that runs.
static CHANGE: OnceLock<Box<dyn Fn(LevelFilter) + Send + Sync>> = OnceLock::new();

/// Starts logging; a second call does nothing.
pub(crate) fn start(level: LogLevel, format: LogFormat) {
    let (filter, handle) = reload::Layer::new(filter(level));
    // A log that cannot be written is no reason to panic.
    let layer = tracing_subscriber::fmt::layer().with_target(false).with_writer(std::io::stderr);
    let layer = layer.log_internal_errors(false);
    let layer = match (format, is_journal()) {
        (LogFormat::Json, false) => layer.json().boxed(),
        (LogFormat::Json, true) => layer.json().map_event_format(Prioritised).boxed(),
        (LogFormat::Text, true) => {
            let layer = layer.without_time().with_level(false).with_ansi(false);
            layer.map_event_format(Prioritised).boxed()
        }
        (LogFormat::Text, false) => {
            let colours = crate::color::is_on(std::io::stderr());
            layer.with_ansi(colours).boxed()
        }
    };
    // Both fail only when logging runs already.
    if tracing_subscriber::registry().with(filter).with(layer).try_init().is_ok() {
        let _ = CHANGE.set(Box::new(move |level| drop(handle.reload(level))));
    }
}

/// Logs at this level from now on.
pub(crate) fn set_level(level: LogLevel) {
    if let Some(change) = CHANGE.get() {
        change(filter(level));
    }
}

/// Text for standard error that is not an event of the log, such as the message with which the program fails: in the
/// journal its lines have this level.
pub(crate) fn on_stderr(level: Level, text: &str) -> String {
    if is_journal() { prioritised(level, text) } else { text.to_owned() }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Whether standard error goes to the journal: `$JOURNAL_STREAM` names its device and inode. A process that inherits
/// the variable and has another standard error does not write to the journal.
fn is_journal() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| {
        let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let stderr = std::io::stderr().as_fd().try_clone_to_owned().map(File::from);
        let own = stderr.and_then(|file| file.metadata());
        own.is_ok_and(|own| named == format!("{}:{}", own.dev(), own.ino()))
    })
}

/// The number of a level in the journal (`syslog(3)`).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Every line with its priority: the journal makes an entry of each.
fn prioritised(level: Level, text: &str) -> String {
    let priority = priority(level);
    text.lines().map(|line| format!("<{priority}>{line}\n")).collect()
}

/// Events in another format, with their priority.
struct Prioritised<F>(F);

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        writer.write_str(&prioritised(*event.metadata().level(), &text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_priority() {
        assert_eq!(prioritised(Level::ERROR, "one\ntwo\n"), "<3>one\n<3>two\n");
        let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        assert_eq!(levels.map(priority), [3, 4, 6, 7, 7]);
    }
}
