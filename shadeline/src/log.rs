//! Logs: to standard error, for people or as JSON lines.

use control::config::{LogFormat, LogLevel};
use tracing_subscriber::filter::LevelFilter;

/// Starts logging; a second call does nothing.
pub(crate) fn start(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_writer(std::io::stderr);
    // Fails only when logging runs already.
    let _ = match format {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => {
            builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init()
        }
    };
}
