//! `shadeline ctl` on the command line: what every pipeline has, and what applications declare.
//!
//! The commands of this file are few. Requests of applications are added from their declarations, so help, completions and
//! manual pages list them all, and nothing here names one.
//!
//! ```text
//! ctl ─┬─ show TABLE           tables: known ones are completed, the running program knows its own
//!      ├─ clear ─┬─ counters
//!      │         └─ WORD       requests that applications declare, under the first of their words
//!      ├─ GROUP ─── WORD
//!      └─ reload, trace, capture, stop
//! ```

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};
use controlplane::{GroupKind, RequestKind, TableKind};

use super::duration;

/// Tables of every pipeline.
const TABLES: &[TableKind] = &[
    TableKind { name: "interfaces", about: "Ports and their traffic" },
    TableKind { name: "queues", about: "Queues of ports and their workers" },
    TableKind { name: "stages", about: "Calls, packets and time of stages" },
    TableKind { name: "drops", about: "Dropped packets by reason, and what to do" },
    TableKind { name: "runtime", about: "Version, workers, devices, memory" },
    TableKind { name: "snapshot", about: "All of these and the hottest rules, at one moment" },
];

#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    /// The control socket of the running program [default: /run/shadeline/ctl.sock, else the user's own]
    ///
    /// By default this is /run/shadeline/ctl.sock if an instance listens there, else the socket of the user's own instance:
    /// shadeline.sock in $XDG_RUNTIME_DIR, or /tmp/shadeline-UID.sock.
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: CtlCommand,
}

/// A command of `ctl`.
#[derive(Debug)]
pub(crate) enum CtlCommand {
    /// One that every pipeline has.
    Core(CoreCommand),
    /// One that an application declares, with its arguments.
    Declared(&'static RequestKind, ArgMatches),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CoreCommand {
    /// Print a table
    Show {
        /// Table to print; the running program may have others
        #[arg(value_parser = TableName, value_name = "TABLE")]
        what: String,
    },
    /// Watch ports, stages, drops, the hottest rules, workers and devices
    ///
    /// Keys: `q` quits, Tab selects a table, the arrow keys sort and scroll it, `p` pauses, `?` lists all keys. Rates are of
    /// the last interval. Where standard output is not a terminal, prints the tables once, as with --once. With --json,
    /// prints the counters of `show snapshot`.
    Top {
        /// Time between two updates, 0.1 to 30 seconds
        #[arg(long, value_parser = interval, value_name = "TIME", default_value = "1s")]
        interval: Duration,
        /// Print the tables once, after one interval
        #[arg(long)]
        once: bool,
    },
    /// Reset counters, or remove what was learned
    #[command(subcommand)]
    Clear(ClearCommand),
    /// Apply the changed configuration file without packet loss
    Reload,
    /// Trace packets through the stages
    ///
    /// With --json, prints one line for each packet: an array of steps.
    Trace {
        /// Number of packets
        #[arg(short = 'c', long, default_value_t = 5)]
        count: u32,
        /// Stop after this time
        #[arg(long, value_parser = duration, value_name = "TIME", default_value = "10s")]
        duration: Duration,
        /// Packet filter of tcpdump's language, such as `tcp and port 80`; --help lists the forms
        #[arg(long_help = packet::filter::SYNTAX)]
        filter: Vec<String>,
    },
    /// Capture packets into a file
    Capture {
        /// A port, a stage, `drops`, or `dumps` (packets with the verdict dump)
        #[arg(value_name = "PORT|STAGE|drops|dumps")]
        at: String,
        /// The capture (pcapng) to write; `-` is standard output
        #[arg(short = 'w', long, value_name = "FILE")]
        write: PathBuf,
        /// Stop after this number of packets
        #[arg(short = 'c', long)]
        count: Option<u64>,
        /// Stop after this time
        #[arg(long, value_parser = duration, value_name = "TIME")]
        duration: Option<Duration>,
        /// Packet filter of tcpdump's language, such as `tcp and port 80`; --help lists the forms
        #[arg(long_help = packet::filter::SYNTAX)]
        filter: Vec<String>,
    },
    /// Drain the queues and stop
    Stop,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClearCommand {
    /// Reset all counters
    Counters,
}

/// Seconds without a unit, as in `top -d 2`. The instance hangs up on clients that are silent for longer.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = seconds.map_or_else(|| duration(text), Ok)?;
    let range = Duration::from_millis(100)..=Duration::from_secs(30);
    range.contains(&time).then_some(time).ok_or_else(|| "expected 100ms to 30s".to_owned())
}

impl Subcommand for CtlCommand {
    fn augment_subcommands(command: Command) -> Command {
        let declared = crate::pipelines::descriptors();
        let requests = declared.iter().flat_map(|declared| declared.requests);
        let groups: Vec<_> = declared.iter().flat_map(|declared| declared.groups).collect();
        requests.fold(CoreCommand::augment_subcommands(command), |command, kind| {
            with_request(command, kind, kind.words, &groups)
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        let declared = crate::pipelines::descriptors();
        CoreCommand::has_subcommand(name)
            || declared.iter().flat_map(|declared| declared.requests).any(|r| r.words[0] == name)
    }
}

/// Adds a request below `command` under its words; a word that is there already is a group that others are in, too.
fn with_request(
    command: Command,
    kind: &'static RequestKind,
    words: &'static [&'static str],
    groups: &[&GroupKind],
) -> Command {
    match words {
        [] => command,
        [word] => command.subcommand(kind.named(word)),
        [word, below @ ..] if command.find_subcommand(word).is_some() => {
            command.mut_subcommand(word, |group| with_request(group, kind, below, groups))
        }
        [word, below @ ..] => {
            let group = Command::new(*word).subcommand_required(true).arg_required_else_help(true);
            let about = groups.iter().find(|group| group.name == *word).map(|group| group.about);
            let group = group.about(about.unwrap_or_default());
            command.subcommand(with_request(group, kind, below, groups))
        }
    }
}

impl FromArgMatches for CtlCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        for kind in crate::pipelines::descriptors().iter().flat_map(|declared| declared.requests) {
            if let Some(own) = below(matches, kind.words) {
                return Ok(Self::Declared(kind, own.clone()));
            }
        }
        CoreCommand::from_arg_matches(matches).map(Self::Core)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The arguments of the command with these words; `None` where another one was given.
fn below<'a>(matches: &'a ArgMatches, words: &[&str]) -> Option<&'a ArgMatches> {
    words.iter().try_fold(matches, |matches, word| match matches.subcommand() {
        Some((name, below)) if name == *word => Some(below),
        _ => None,
    })
}

/// The name of a table: any word, for the running program may have tables that this one does not know; those that this
/// one knows are in the help and completed.
#[derive(Debug, Clone, Copy)]
struct TableName;

impl TypedValueParser for TableName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        let name = StringValueParser::new().parse_ref(command, arg, value)?;
        if name.is_empty() || name.starts_with('-') {
            return Err(Error::raw(ErrorKind::InvalidValue, "expected the name of a table\n"));
        }
        Ok(name)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let mut tables = TABLES.to_vec();
        for table in crate::pipelines::descriptors().iter().flat_map(|declared| declared.tables) {
            if tables.iter().all(|known| known.name != table.name) {
                tables.push(*table);
            }
        }
        let values = tables.into_iter();
        Some(Box::new(values.map(|table| PossibleValue::new(table.name).help(table.about))))
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};
    use control::api::Request;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "ctl", propagate_version = true, version = "1")]
    struct Ctl {
        #[command(flatten)]
        args: CtlArgs,
    }

    fn parse(words: &str) -> CtlArgs {
        let words = words.split_whitespace();
        Ctl::try_parse_from(["ctl"].into_iter().chain(words)).unwrap().args
    }

    fn error(words: &str) -> String {
        let words = words.split_whitespace();
        Ctl::try_parse_from(["ctl"].into_iter().chain(words)).unwrap_err().to_string()
    }

    fn call(words: &str) -> Request {
        let CtlCommand::Declared(kind, matches) = parse(words).command else { panic!("{words}") };
        kind.request(&matches).unwrap()
    }

    #[test]
    fn the_commands_are_sound() {
        Ctl::command().debug_assert();
        for declared in crate::pipelines::descriptors() {
            for kind in declared.requests {
                let group = kind.words[0];
                assert!(
                    kind.words.len() == 1
                        || group == "clear"
                        || declared.groups.iter().any(|known| known.name == group),
                    "{group}"
                );
                assert!(!control::api::CORE_REQUESTS.contains(&kind.name().as_str()));
            }
            for table in declared.tables {
                assert!(TABLES.iter().all(|core| core.name != table.name), "{table:?}");
                assert!(!control::api::CORE_RESPONSES.contains(&table.name));
            }
        }
    }

    #[test]
    fn declared_requests_are_commands() {
        for (words, name, fields) in [
            (
                "route add 10.0.0.0/8 lan",
                "route_add",
                json!({"prefix": "10.0.0.0/8", "next_hop": "lan"}),
            ),
            ("route get 192.0.2.1 --json", "route_get", json!({"address": "192.0.2.1"})),
            ("--socket /s clear macs --port p1", "clear_macs", json!({"port": "p1"})),
            ("name del /a", "name_del", json!({"prefix": "/a"})),
            ("rule show", "rule_show", json!({})),
            ("rule replace --file /f", "rule_replace_all", json!({"file": "/f"})),
        ] {
            let fields = control::api::fields_of(&fields).unwrap();
            assert_eq!(call(words), Request::Call { name: name.to_owned(), fields }, "{words}");
        }
        // Options of `ctl` may be anywhere.
        let args = parse("rule --json show --socket /s");
        assert!(args.json && args.socket.as_deref() == Some(std::path::Path::new("/s")));
        let CtlCommand::Declared(kind, matches) = parse("rule add").command else { panic!() };
        assert_eq!(kind.request(&matches).unwrap_err(), "a rule needs a name");
    }

    #[test]
    fn core_commands_are_read() {
        let core = |words: &str| match parse(words).command {
            CtlCommand::Core(command) => command,
            CtlCommand::Declared(kind, _) => panic!("{kind:?}"),
        };
        let show = core("show routes");
        assert!(matches!(show, CoreCommand::Show { what } if what == "routes"));
        // The running program may have tables that this one does not know.
        let show = core("show --json flows");
        assert!(matches!(show, CoreCommand::Show { what } if what == "flows"));
        assert!(matches!(core("clear counters"), CoreCommand::Clear(ClearCommand::Counters)));
        assert!(matches!(core("trace -c 2 icmp"), CoreCommand::Trace { count: 2, .. }));
        let top = core("top --interval 0.5 --once");
        let half = Duration::from_millis(500);
        assert!(matches!(top, CoreCommand::Top { interval, once: true } if interval == half));
        assert!(error("top --interval 31s").contains("expected 100ms to 30s"));
        assert!(error("top --interval 0").contains("expected 100ms to 30s"));
        assert!(error("top --interval soon").contains("expected a"));
        let capture = core("capture lan -w f -c 6 tcp and port 80");
        assert!(matches!(capture, CoreCommand::Capture { filter, .. } if filter.len() == 4));
        assert!(error("clear counters --port p1").contains("unexpected argument '--port'"));
        assert!(error("clear stations").contains("unrecognized subcommand"));
        assert!(error("weather").contains("unrecognized subcommand"));
        assert!(error("route add 38.0.0.1/8 lan").contains("expected 38.0.0.0/8"));
        assert!(error("capture lan").contains("--write <FILE>"));
    }

    #[test]
    fn help_and_completions_list_what_is_declared() {
        let mut command = Ctl::command();
        command.build();
        let show = command.find_subcommand("show").unwrap();
        let what = show.get_arguments().find(|arg| arg.get_id() == "what").unwrap();
        let values = what.get_possible_values();
        let names: Vec<_> = values.iter().map(|value| value.get_name()).collect();
        for name in ["interfaces", "runtime", "routes", "neighbours", "macs", "faces", "names"] {
            assert_eq!(names.iter().filter(|known| **known == name).count(), 1, "{name}");
        }
        for name in ["trace", "capture"] {
            let help = command.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            for form in
                ["ether host", "portrange", " mask ", "icmp[icmptype]", "vlan 10", "parentheses"]
            {
                assert!(help.contains(form), "{name} {form}: {help}");
            }
        }
        let rule = command.find_subcommand_mut("rule").unwrap();
        let help = rule.render_long_help().to_string();
        assert!(help.contains("Show or change the rules of the firewall"), "{help}");
        assert!(help.contains("replace") && !help.contains("replace_all"), "{help}");
        let clear = command.find_subcommand_mut("clear").unwrap().render_help().to_string();
        assert!(clear.contains("counters") && clear.contains("macs"), "{clear}");
    }
}
