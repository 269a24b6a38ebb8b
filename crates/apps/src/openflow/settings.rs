//! `[stage.openflow]`.

use std::fmt;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use control::config::kinds::{
    Kind, boolean, duration, file, integer, list, name_of, parsed, text, words,
};
use control::config::{Config, StageConfig};
use openflow::Version;

use super::queues::QueueText;

control::words! {
    /// The version of the protocol whose rules apply.
    pub enum Protocol {
        /// OpenFlow 1.0: one table.
        V10 = "1.0",
        /// OpenFlow 1.3.
        V13 = "1.3",
    }
}

control::words! {
    /// How flows with wildcards are found.
    pub enum Search {
        /// By what is measured to be the quickest.
        Auto = "auto",
        /// One after the other.
        Linear = "linear",
        /// A hash table for each mask.
        Tuple = "tuple",
        /// The same with Bloom filters.
        Bloom = "bloom",
        /// Cut trees, where flows look at no more than sixteen words of 32 bits; else one after the other.
        Cuts = "cuts",
    }
}

control::words! {
    /// What the switch does when no controller can be reached.
    pub enum FailMode {
        /// It goes on with the flows that it has.
        Secure = "secure",
        /// It becomes a learning switch.
        Standalone = "standalone",
    }
}

/// What controllers know a switch by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatapathId(NonZeroU64);

impl DatapathId {
    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl FromStr for DatapathId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, lengths) = match text.strip_prefix("0x") {
            Some(digits) => (digits, 1..=16),
            None => (text, 16..=16),
        };
        let is_number =
            lengths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_number.then(|| u64::from_str_radix(digits, 16).ok()).flatten();
        let number = number.and_then(NonZeroU64::new).map(Self);
        number.ok_or_else(|| {
            "expected 16 hexadecimal digits, or 0x and up to 16, of a number above 0".to_owned()
        })
    }
}

impl fmt::Display for DatapathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

control::section! {
    /// An OpenFlow switch ([openflow.md](openflow.md)).
    pub struct Settings("stage.openflow") {
        /// Rules of OpenFlow that apply: `1.3`, or `1.0` with one table, where a flow without wildcards comes before all others and
        /// packets that no flow takes are for the controller.
        restart version: Protocol = Protocol::V13, words();
        /// Number of tables; 1.0 has one.
        restart tables: u8 = 8, integer(1..=254);
        /// The identifier that controllers know the switch by: 16 hexadecimal digits, such as `0000020000000001`, or fewer behind
        /// `0x`. Without it, the lowest address of a port.
        restart datapath_id: Option<DatapathId> = None, parsed("\"0x1\"").optional();
        /// Maximum number of flows.
        restart flows_max: u32 = 1 << 20, integer(1..=1 << 26);
        /// How flows with wildcards are searched. `auto` measures which structure is the quickest for the flows of a table.
        restart search: Search = Search::Auto, words();
        /// Find the flows of all tables that packets meet on the device; workers carry out the actions. It needs a `backend` with a
        /// device; otherwise workers do it. `flows_max` is at most 8388608 with it. Results do not depend on it.
        restart device: bool = false, boolean();
        /// Addresses at which tools such as `ovs-ofctl` reach the switch, as `tcp:ADDRESS:PORT` or `tls:ADDRESS:PORT`; also
        /// `ptcp:PORT:ADDRESS` and `pssl:PORT:ADDRESS`. Anyone who can reach an address with `tcp` can change flows: there is
        /// neither a password nor encryption.
        restart listen: Vec<String> = Vec::new(), list(text(), "an array such as [\"tcp:127.0.0.1:6653\"]");
        /// Addresses at which `ovs-ofctl snoop` gets copies of what controllers send and get, written as in `listen`. Messages of
        /// tools are not copied.
        restart snoop: Vec<String> = Vec::new(), list(text(), "an array such as [\"tcp:127.0.0.1:6655\"]");
        /// Controllers that the switch connects to, as `tcp:HOST:PORT` or `tls:HOST:PORT` (`ssl:HOST:PORT`). It tries again until
        /// they answer.
        restart controllers: Vec<String> = Vec::new(), list(text(), "an array such as [\"tcp:192.0.2.1:6653\"]");
        /// The private key of the switch, for `tls`: a file in PEM that only its owner may read.
        restart private_key: Option<PathBuf> = None, file("\"switch-key.pem\"").optional();
        /// The certificate of the switch in PEM, with those between it and that of its CA behind it.
        restart certificate: Option<PathBuf> = None, file("\"switch.pem\"").optional();
        /// Certificates of the CAs, in PEM, that sign those of controllers and tools. A controller's certificate has to name the
        /// host of its address.
        restart ca_certificate: Option<PathBuf> = None, file("\"ca.pem\"").optional();
        /// Lists of certificates that the CAs have revoked, in PEM. Then each CA needs a list, and none that is in a list is
        /// accepted.
        restart crl: Option<PathBuf> = None, file("\"crl.pem\"").optional();
        /// What the switch does without a controller for three times `inactivity_probe`. `secure`: it keeps its flows.
        /// `standalone`: all packets go to NORMAL, until a controller is back. Counts only with `controllers`.
        restart fail_mode: FailMode = FailMode::Secure, words();
        /// A controller or tool that is silent for this time is probed, and disconnected after another.
        restart inactivity_probe: Duration = Duration::from_secs(5), duration(Duration::from_millis(100)..=Duration::from_hours(1));
        /// The port that is LOCAL for flows. With `backend = "tap"` it is an interface of Linux.
        restart local: Option<String> = None, name_of("a port").optional();
        /// Packets a second for all controllers together; 0: not limited. More are dropped.
        restart packet_in_rate: u32 = 1000, integer(0..=10_000_000);
        /// Queues in front of ports: `port=wan,queue=1,min_rate=10M,max_rate=50M,packets=500` is a queue with its least and its
        /// highest rate in bits a second, and the packets that wait in it at most (256) at each worker; `port=wan,rate=100M` is
        /// the rate of the port itself.
        restart queues: Vec<QueueText> = Vec::new(), list(parsed("\"port=wan,queue=1,min_rate=10M\""), "an array such as [\"port=wan,queue=1,min_rate=10M\"]");
        /// Files of flows, groups and meters to begin with, in the syntax of `ovs-ofctl` ([openflow.md](openflow.md)), read in this
        /// order.
        restart flows: Vec<PathBuf> = Vec::new(), list(file("\"flows.txt\""), "an array such as [\"flows.txt\"]");
    }
}

impl Settings {
    /// The version of the protocol.
    pub fn protocol(&self) -> Version {
        match self.version {
            Protocol::V10 => Version::V10,
            Protocol::V13 => Version::V13,
        }
    }

    /// What the tables are made with.
    pub fn tables(&self) -> flowtable::Settings {
        let device = self.device;
        match self.version {
            Protocol::V10 => flowtable::Settings { device, ..flowtable::Settings::of_10(128) },
            Protocol::V13 => {
                flowtable::Settings { device, ..flowtable::Settings::of_13(self.tables) }
            }
        }
    }

    /// The name of the structure in `classify`.
    pub fn algorithm(&self) -> &'static str {
        match self.search {
            Search::Auto => "auto",
            Search::Linear => "linear",
            Search::Tuple => "tuple",
            Search::Bloom => "bloom",
            Search::Cuts => "cuts",
        }
    }
}

/// A configuration whose switches use a device: for the programs that a build brings.
pub(super) fn with_device(config: &mut Config) {
    config.stages.retain(|stage| stage.name != super::STAGE);
    config.stages.push(StageConfig {
        name: super::STAGE.to_owned(),
        kind: super::STAGE,
        context: Vec::new(),
        settings: Some(Box::new(Settings { device: true, ..Settings::default() })),
    });
}
