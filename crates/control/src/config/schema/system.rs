//! `[system]`.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::api::place::{self, PATH_BYTES_MAX};
use crate::config::kinds::{Custom, Kind, custom, integer, list, words};
use crate::config::values;

crate::section! {
    /// Threads, memory, the log, the control socket and the metrics.
    pub struct System("system") {
        /// Worker threads. If a device is named and neither `workers` nor `cpus` is set, a live run leaves one CPU to
        /// the threads of the device. A capture run (`run -r`) has one worker unless this key is set; its output does
        /// not depend on the number of workers. Some always read captures with one worker, and a warning says so:
        /// a named-data forwarder, an IPsec gateway, a switch with storm control, an OpenFlow switch with meters, queues
        /// or time-outs, rules that count per host, and several pipelines or firewalls that limit ICMP errors.
        restart workers: usize = 1, integer(1..=1024).shown("usable CPUs");
        /// CPU of each worker. If the array is empty, workers take the usable CPUs in order; if there are more workers
        /// than usable CPUs, they are not pinned.
        restart cpus: Vec<usize> = Vec::new(),
            list(integer(0..=65_535), "an array of CPU numbers");
        /// Packet buffers of 2,048 bytes per worker. At least four chunks are required.
        restart cells: usize = 16_384, integer(256..=16_777_216);
        /// Huge pages for packet buffers and tables. `auto`: 2 MB pages where the kernel provides them (`madvise`).
        /// `try`: reserved 2 MB pages first, otherwise as `auto`. `off`: 4 KB pages.
        restart huge_pages: HugePages = HugePages::Auto, words();
        /// Least severe level that is logged.
        live log: LogLevel = LogLevel::Info, words();
        /// Format of the log: lines of text, or one JSON object per line.
        restart log_format: LogFormat = LogFormat::Text, words();
        /// Path of the control socket (mode 0660). Its folder is created if it is missing.
        restart socket: PathBuf = place::of_instance(), socket().shown(place::SHOWN);
        /// Address and TCP port of the metrics server: Prometheus text at `/metrics`, a dashboard at `/` (top.md).
        restart metrics: Option<SocketAddr> = None, metrics();
        /// Names by which clients may address the metrics server, beside its addresses, `localhost` and the name of the
        /// machine: those of a scrape by name, or of a proxy. Requests with another `Host` are refused (DNS rebinding).
        restart metrics_hosts: Vec<String> = Vec::new(),
            list(host(), "an array of host names such as [\"router.example.net\"]");
        /// User that a live run changes to if root starts it (security.md). If root owns the configuration, the default is
        /// `shadeline`, or root where no such user exists. `"root"` keeps root. The user must be able to read the
        /// configuration and the files that it names.
        restart user: Option<String> = None, user().shown("the owner of the configuration");
        /// Filter of a live run's system calls (security.md). `enforce`: calls that the program does not need fail.
        /// `log`: the kernel logs them. `off`: no filter.
        restart seccomp: Seccomp = Seccomp::Enforce, words();
    }
    also {
        /// Whether the file sets `workers`. Captures have one worker where it does not.
        has_workers: bool = false;
    }
}

impl System {
    /// The defaults on a machine with `cores` usable CPUs.
    pub(in crate::config) fn on(cores: usize) -> System {
        System { workers: cores.max(1), ..System::default() }
    }
}

crate::words! {
    /// `system.huge_pages`.
    pub enum HugePages {
        /// `madvise`: the kernel gives 2 MB pages where it can.
        Auto = "auto",
        /// 4 KB pages.
        Off = "off",
        /// Reserved 2 MB pages (`hugetlbfs`) first, otherwise as `Auto`.
        Try = "try",
    }
}

crate::words! {
    /// `system.log`.
    pub enum LogLevel {
        /// Nothing.
        Off = "off",
        /// Failures.
        Error = "error",
        /// Problems that do not stop anything.
        Warn = "warn",
        /// Starts, stops and changes.
        Info = "info",
        /// Decisions.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

crate::words! {
    /// `system.log_format`.
    pub enum LogFormat {
        /// Lines of text.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }
}

crate::words! {
    /// `system.seccomp`.
    pub enum Seccomp {
        /// Calls that are not needed fail with `EPERM`.
        Enforce = "enforce",
        /// The kernel logs them (`SECCOMP_RET_LOG`).
        Log = "log",
        /// No filter.
        Off = "off",
    }
}

/// A name that `useradd` takes, and longer ones (`systemd`: "relaxed").
fn user() -> Custom<Option<String>> {
    let read = |walk: &mut values::Walk<'_>, value: &values::Value<'_>| {
        let text = values::string(walk, value)?;
        let is_part = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, ':' | '/');
        if text.is_empty() || text.len() > 256 || !text.chars().all(is_part) {
            let message = format!("`{text}` is not the name of a user");
            walk.error(value.span(), message).expected("a name as in /etc/passwd");
            return None;
        }
        Some(Some(text.to_owned()))
    };
    custom("name", "the name of a user", read, |name| name.clone().unwrap_or_default())
}

fn socket() -> Custom<PathBuf> {
    let allowed = format!("a path of 1 to {PATH_BYTES_MAX} bytes");
    let read = |walk: &mut values::Walk<'_>, value: &values::Value<'_>| {
        let text = values::string(walk, value)?;
        if text.is_empty() || text.len() > PATH_BYTES_MAX || text.contains('\0') {
            let message = format!("{} cannot name a Unix socket", walk.subject());
            walk.error(value.span(), message)
                .expected(format!("a path of 1 to {PATH_BYTES_MAX} bytes"));
            return None;
        }
        Some(text.into())
    };
    custom("path", allowed, read, |path| path.display().to_string())
}

/// A name without a port.
fn host() -> Custom<String> {
    let read = |walk: &mut values::Walk<'_>, value: &values::Value<'_>| {
        let text = values::string(walk, value)?;
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || !text.chars().all(is_part) {
            let message = format!("`{text}` is not a host name");
            walk.error(value.span(), message)
                .expected("a name without a port, such as \"router.example.net\"");
            return None;
        }
        Some(text.to_owned())
    };
    custom("name", "a host name", read, String::clone)
}

fn metrics() -> Custom<Option<SocketAddr>> {
    let read =
        |walk: &mut values::Walk<'_>, value: &values::Value<'_>| match values::string(walk, value)?
        {
            "off" => Some(None),
            text => text.parse().map(Some).ok().or_else(|| {
                let message = format!("{} is `{text}`", walk.subject());
                walk.error(value.span(), message).expected(
                    "ADDRESS:PORT such as \"127.0.0.1:9101\" or \"[::1]:9101\", or \"off\"",
                );
                None
            }),
        };
    let text = |address: &Option<SocketAddr>| {
        address.map_or_else(|| "off".to_owned(), |address| address.to_string())
    };
    custom("address", "`\"ADDRESS:PORT\"`, or `\"off\"`", read, text)
}
