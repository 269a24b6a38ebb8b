//! `[ids]`.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::kinds::{Custom, boolean, custom, duration, file, integer, list, words};
use crate::config::section::Kind as _;
use crate::config::values::{self, Value, Walk, string, wrong_kind};

crate::section! {
    /// Intrusion detection: rules of Snort 2.9 and Suricata over the flows of a pipeline ([ids.md](ids.md)).
    #[derive(Eq)]
    pub struct Ids("ids") {
        /// Files of rules, read in this order. A reload reads them again.
        live rules: Vec<PathBuf> = Vec::new(), list(file("\"local.rules\""), "an array such as [\"local.rules\"]");
        /// Addresses and ports that rules name: `{ HOME_NET = "[192.0.2.0/24]", HTTP_PORTS = "[80,8080]" }`. Others have the
        /// values of Suricata's `suricata.yaml`. A name that ends in `_PORT` or `_PORTS` is one of ports.
        live vars: Vec<(String, String)> = Vec::new(), vars().shown("none");
        /// Classes of rules and their priorities: Suricata's `classification.config`.
        live classification: Option<PathBuf> = None, optional_file();
        /// Thresholds, suppressed alerts and rate filters: Suricata's `threshold.config`.
        live thresholds: Option<PathBuf> = None, optional_file();
        /// Categories of reputations for rules with `iprep`, with lines `NUMBER,NAME,DESCRIPTION`: Suricata's `categories.txt`.
        live reputation_categories: Option<PathBuf> = None, optional_file();
        /// Files of reputations, with lines `ADDRESS,CATEGORY,SCORE`.
        live reputation: Vec<PathBuf> = Vec::new(), list(file("\"reputation.list\""), "an array such as [\"reputation.list\"]");
        /// `tap`: rules drop no packets. `inline`: packets that `drop` and `reject` rules match are dropped, with later packets
        /// of their flows.
        rebuild action: IdsAction = IdsAction::Tap, words();
        /// With `action` `inline`, drop TCP segments that are no part of a stream, as they would pass without an inspection of the
        /// stream: outside of the window, with an acknowledgment of data that was not sent or that is too old, with data after a
        /// reset or FIN, of no connection. Suricata's `stream.drop-invalid`.
        live drop_invalid: bool = true, boolean();
        /// Folder for `eve.json`, `fast.log` and `stats.log`; made if it is missing. They are appended to, and opened again on
        /// SIGHUP.
        restart output: Option<PathBuf> = None, output();
        /// Events in `eve.json`. `drop`: packets that rules of `[ids]` drop; packets that rules of a firewall drop only if
        /// `event_types` of `[flow]` has `drop`, too. `packet`: packets that rules with `tag` ask for.
        restart event_types: Vec<IdsEvent> = IdsEvent::ALL_BUT_STATS.to_vec(),
            list(words(), "an array such as [\"alert\", \"http\"]").not_empty("[\"alert\"]");
        /// How often counters are written into `stats.log`, and into `eve.json` with the event type `stats`.
        restart stats: Duration = Duration::from_secs(8),
            duration(Duration::from_secs(1)..=Duration::from_hours(24));
        /// Search packets on the device for the literals of all rules, before the workers follow flows; workers then search only
        /// packets that have one. With it the device decodes packets, too, as with `device` of `[flow]`. It needs a `backend`
        /// with a device; otherwise workers do it. Results do not depend on it.
        restart device: bool = false, boolean();
        /// Memory of the application parsers for all flows of one worker, in KiB. If it is full, a new flow gets no parser, and a
        /// flow whose parser needs more loses the parser: such a flow has no events of its application, but rules still see its
        /// packets and bytes.
        live session_kib: u32 = 256 << 10, integer(64..=1 << 26);
        /// Memory for the bytes of streams and buffers that rules still search, for all flows of one worker, in KiB. If it is full,
        /// rules search the streams of a flow that needs more segment by segment.
        live stream_kib: u32 = 256 << 10, integer(64..=1 << 26);
        /// Treatment of a flow that exceeds a bound of its inspection: a head, line or compressed body that is too long, too many
        /// transactions, no memory for its parser or its streams, a search that takes too long. `inspect`: data beyond the bound is not
        /// inspected, and inspection continues. `bypass`: the flow continues without further inspection. `drop`: with `action`
        /// `inline` it is dropped from that packet on, and TCP segments for which `reassembly_mib` or `reassembly_kib_per_flow`
        /// of `[flow]` has no room are dropped, so that their sender repeats them.
        restart on_limit: IdsOnLimit = IdsOnLimit::Inspect, words();
        /// ICMP answers to rejected packets per second, for each port.
        live icmp_rate: u32 = 100, integer(0..=1_000_000);
    }
    also {
        /// The file has the section.
        is_on: bool = false;
    }
}

crate::words! {
    /// `ids.action`.
    pub enum IdsAction {
        /// Packets go on.
        Tap = "tap",
        /// Rules may drop.
        Inline = "inline",
    }
}

crate::words! {
    /// `ids.on_limit`.
    pub enum IdsOnLimit {
        /// It is inspected as far as bounds allow.
        Inspect = "inspect",
        /// It goes on.
        Bypass = "bypass",
        /// It is dropped.
        Drop = "drop",
    }
}

crate::words! {
    /// An element of `ids.event_types`.
    pub enum IdsEvent {
        /// Matches of rules.
        Alert = "alert",
        /// Packets that rules dropped.
        Drop = "drop",
        /// Flows that end.
        Flow = "flow",
        /// Requests of HTTP with their responses.
        Http = "http",
        /// Messages of DNS.
        Dns = "dns",
        /// Handshakes of TLS.
        Tls = "tls",
        /// Connections of SSH.
        Ssh = "ssh",
        /// Mails.
        Smtp = "smtp",
        /// Commands of FTP.
        Ftp = "ftp",
        /// Files in transactions.
        Fileinfo = "fileinfo",
        /// What is wrong in what applications say.
        Anomaly = "anomaly",
        /// Packets that rules tag.
        Packet = "packet",
        /// Counters.
        Stats = "stats",
    }
}

impl IdsEvent {
    /// What is written where nothing else is asked for.
    pub const ALL_BUT_STATS: [Self; 12] = [
        Self::Alert,
        Self::Drop,
        Self::Flow,
        Self::Http,
        Self::Dns,
        Self::Tls,
        Self::Ssh,
        Self::Smtp,
        Self::Ftp,
        Self::Fileinfo,
        Self::Anomaly,
        Self::Packet,
    ];
}

fn path_text(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(|| "off".to_owned(), |path| path.display().to_string())
}

/// A file that can be read, or `off`.
fn optional_file() -> Custom<Option<PathBuf>> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| match string(walk, value)? {
        "off" => Some(None),
        _ => values::file(walk, value, "the path of a file, or \"off\"").map(Some),
    };
    custom("path", "a path, or `\"off\"`", read, path_text)
}

fn output() -> Custom<Option<PathBuf>> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let text = string(walk, value)?;
        if text.is_empty() || text.contains('\0') {
            let message = format!("{} cannot name a folder", walk.subject());
            walk.error(value.span(), message).expected("\"/var/log/shadeline\"");
            return None;
        }
        Some((text != "off").then(|| text.into()))
    };
    custom("path", "a path, or `\"off\"`", read, path_text)
}

fn vars() -> Custom<Vec<(String, String)>> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let Some(table) = value.get_ref().as_table() else {
            return wrong_kind(walk, value, "a table such as { HOME_NET = \"192.0.2.0/24\" }");
        };
        let mut all: Vec<(String, String)> = Vec::new();
        for (name, value) in table {
            let text = name.get_ref();
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if text.is_empty() || !text.bytes().all(is_name) {
                walk.error(name.span(), format!("`{text}` cannot name a variable"))
                    .expected("letters, digits and `_`, without `$`");
                return None;
            }
            all.push((text.to_string(), string(walk, value)?.to_owned()));
        }
        all.sort();
        Some(all)
    };
    let text = |all: &Vec<(String, String)>| {
        let all: Vec<String> =
            all.iter().map(|(name, value)| format!("{name} = \"{value}\"")).collect();
        format!("{{ {} }}", all.join(", "))
    };
    custom("table", "`{ NAME = \"LIST\" }`", read, text).bare()
}
