//! Logs: to standard error, for people or as JSON lines. The level may change while the program runs.

use std::sync::OnceLock;

use control::config::{LogFormat, LogLevel};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
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
    let registry = tracing_subscriber::registry().with(filter);
    let started = match format {
        LogFormat::Json => registry.with(layer.json()).try_init(),
        LogFormat::Text => {
            let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
            registry.with(layer.with_ansi(colours)).try_init()
        }
    };
    // Both fail only when logging runs already.
    if started.is_ok() {
        let _ = CHANGE.set(Box::new(move |level| drop(handle.reload(level))));
    }
}

/// Logs at this level from now on.
pub(crate) fn set_level(level: LogLevel) {
    if let Some(change) = CHANGE.get() {
        change(filter(level));
    }
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
