//! Logs: to standard error, for people or as JSON lines, or for the journal. The level may change while the program runs.
//! Lines of a live run have their time. Those of a command that reads files begin as its other messages do, with `warning:`.
//!
//! A service manager that reads standard error into the journal names that stream in `$JOURNAL_STREAM`. Then each line
//! begins with its priority in the form of the kernel's log (`<4>`, `sd-daemon(3)`), and a line of text has neither a
//! time nor a level of its own, which the journal keeps already.
//!
//! A live run does not wait for whoever reads standard error: its lines go by a [`queue`].

mod queue;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use control::config::{LogFormat, LogLevel};
use files::output::{note_coloured, shown, shown_coloured};
use rustix::event::{PollFd, PollFlags, poll};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use queue::{Pushes, Queue};

/// How long the program waits at its end for a line of its log to be read.
const LAST_LINE: Duration = Duration::from_millis(500);

/// How long a thread that panics waits for that. The end of the process may follow at once.
const LINE_OF_PANIC: Duration = Duration::from_millis(50);

/// Lines of a live run.
static QUEUE: Queue = Queue::new();

/// Whether a thread writes what is in the queue.
static IS_QUEUED: AtomicBool = AtomicBool::new(false);

/// Whether the log that runs is JSON.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Changes the level of the log that runs.
static CHANGE: OnceLock<Box<dyn Fn(LevelFilter) + Send + Sync>> = OnceLock::new();

/// From now on nothing waits for whoever reads standard error: of what is not read in time lines are lost, and counted.
/// Messages of panics go the same way. For a live run.
pub(crate) fn queue() {
    let out = io::stderr().as_fd().try_clone_to_owned();
    let tell =
        |lost| tracing::warn!("{lost} lines of the log are lost: they were not read in time");
    let write = |out| move || QUEUE.write_to(Patient(File::from(out)), tell);
    let thread = |out| std::thread::Builder::new().name("log".into()).spawn(write(out));
    if out.and_then(thread).is_err() {
        return; // it is written directly, as ever
    }
    IS_QUEUED.store(true, Ordering::Release);
    std::panic::set_hook(Box::new(|info| {
        QUEUE.push(on_stderr(Level::ERROR, &shown(&panic_text(info))).as_bytes());
        QUEUE.flush(LINE_OF_PANIC);
    }));
}

/// Whether everything on standard error is a line of JSON, also what is no event of the program's own.
pub(crate) fn is_json(level: Level) -> bool {
    // What the level hides would be lost.
    IS_JSON.load(Ordering::Acquire)
        && match level {
            Level::ERROR => tracing::enabled!(Level::ERROR),
            _ => tracing::enabled!(Level::WARN),
        }
}

/// A message for standard error, behind the lines of the log. It may have colours; what is in it of names has passed
/// [`shown`] before.
pub(crate) fn say(level: Level, text: &str) {
    let text = on_stderr(level, text);
    match IS_QUEUED.load(Ordering::Acquire) {
        true => QUEUE.push(format!("{}\n", shown_coloured(text.trim_end())).as_bytes()),
        false => note_coloured(text.trim_end()),
    }
}

/// Waits until the last lines are written, unless nobody reads them.
pub(crate) fn finish() {
    if IS_QUEUED.load(Ordering::Acquire) {
        QUEUE.flush(LAST_LINE);
    }
}

/// Lines of the log that are lost, because standard error was not read in time.
pub(crate) fn lost() -> u64 {
    QUEUE.lost()
}

/// What the standard library says of a panic.
fn panic_text(info: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
    let text = engine::panic_text(info.payload());
    let name = thread.name().unwrap_or("<unnamed>");
    let mut text = format!("\nthread '{name}' panicked{place}:\n{text}\n");
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        text += &format!("stack backtrace:\n{backtrace}");
    }
    text
}

/// A descriptor that another process may have made non-blocking: writing waits all the same.
struct Patient(File);

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ready = PollFd::new(&self.0, PollFlags::OUT);
                    let _ = poll(&mut [ready], None);
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the log of a live run; a second call does nothing.
pub(crate) fn start(level: LogLevel, format: LogFormat) {
    start_as(level, format, true);
}

/// Starts the log of a command that reads files: errors and warnings at most.
pub(crate) fn start_command(level: LogLevel, format: LogFormat) {
    start_as(level.min(LogLevel::Warn), format, false);
}

fn start_as(level: LogLevel, format: LogFormat, is_live: bool) {
    let (filter, handle) = reload::Layer::new(filter(level));
    let writer = BoxMakeWriter::new(|| -> Box<dyn Write> {
        match IS_QUEUED.load(Ordering::Acquire) {
            true => Box::new(Pushes(&QUEUE)),
            false => Box::new(io::stderr()),
        }
    });
    // A log that cannot be written is no reason to panic.
    let layer = tracing_subscriber::fmt::layer().with_target(false).with_writer(writer);
    let layer = layer.log_internal_errors(false);
    let layer = match (format, is_journal()) {
        (LogFormat::Json, false) => layer.json().map_event_format(Shown).boxed(),
        (LogFormat::Json, true) => {
            layer.json().map_event_format(Shown).map_event_format(Prioritised).boxed()
        }
        (LogFormat::Text, true) => {
            let layer = layer.without_time().with_level(false).with_ansi(false);
            layer.fmt_fields(fields()).map_event_format(Prioritised).boxed()
        }
        (LogFormat::Text, false) => {
            let layer = layer.with_ansi(crate::color::is_on(std::io::stderr()));
            let layer = layer.fmt_fields(fields());
            if is_live { layer.boxed() } else { layer.event_format(Plain).boxed() }
        }
    };
    // Both fail only when logging runs already.
    if tracing_subscriber::registry().with(filter).with(layer).try_init().is_ok() {
        let _ = CHANGE.set(Box::new(move |level| drop(handle.reload(level))));
        IS_JSON.store(format == LogFormat::Json, Ordering::Release);
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
fn on_stderr(level: Level, text: &str) -> String {
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

/// The message and the fields of an event, as a terminal may get them.
fn fields() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    debug_fn(|writer, field, value| {
        let text = format!("{value:?}");
        match field.name() {
            "message" => write!(writer, "{}", shown(&text)),
            name => write!(writer, "{name}={}", shown(&text)),
        }
    })
    .delimited(" ")
}

/// JSON without the control characters that JSON allows.
struct Shown<F>(F);

impl<S, N, F> FormatEvent<S, N> for Shown<F>
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
        writer.write_str(&shown(&text))
    }
}

/// Events as messages of a command: `warning: …`.
struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (paint, word) = match *event.metadata().level() {
            Level::ERROR => ("\x1b[1;31m", "error"),
            _ => ("\x1b[1;33m", "warning"),
        };
        match writer.has_ansi_escapes() {
            true => write!(writer, "{paint}{word}\x1b[0m: ")?,
            false => write!(writer, "{word}: ")?,
        }
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
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

    /// A log that keeps what is written.
    #[derive(Clone, Default)]
    struct Kept(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_command_logs_without_a_time() {
        let logged = |has_colours| {
            let kept = Kept::default();
            let writer = kept.clone();
            let layer = tracing_subscriber::fmt::layer().with_target(false).with_ansi(has_colours);
            let layer = layer.with_writer(move || writer.clone());
            let layer = layer.fmt_fields(fields()).event_format(Plain);
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                tracing::warn!("a.rules:3:1: unknown action `alrt`");
                tracing::error!("out: no space");
            });
            String::from_utf8(kept.0.lock().unwrap().clone()).unwrap()
        };
        let plain = "warning: a.rules:3:1: unknown action `alrt`\nerror: out: no space\n";
        assert_eq!(logged(false), plain);
        assert!(logged(true).starts_with("\x1b[1;33mwarning\x1b[0m: a.rules"));
    }

    #[test]
    fn names_in_the_log_have_no_control_characters() {
        let odd: String = (0..0xa0).filter_map(char::from_u32).filter(|c| c.is_control()).collect();
        let odd = odd.replace(['\n', '\t'], "") + "\x1b[31m\u{202e}";
        let logged = |is_json: bool| {
            let kept = Kept::default();
            let writer = kept.clone();
            let layer = tracing_subscriber::fmt::layer().with_ansi(false);
            let layer = layer.with_writer(move || writer.clone());
            let layer = match is_json {
                false => layer.fmt_fields(fields()).boxed(),
                true => layer.json().map_event_format(Shown).boxed(),
            };
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                tracing::info!(name = %odd, other = ?odd, "port {odd}: up");
            });
            String::from_utf8(kept.0.lock().unwrap().clone()).unwrap()
        };
        for is_json in [false, true] {
            let text = logged(is_json);
            assert!(text.contains("\\u001b[31m"), "{text:?}");
            let odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!text.contains(odd), "{text:?}");
        }
    }
}
