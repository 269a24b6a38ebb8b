//! `shadeline ctl` on the command line: what every pipeline has, and what applications declare.
//!
//! The commands of this file are few. Requests of applications are added from their declarations, so help, completions and
//! manual pages list them all, and nothing here names one.
//!
//! ```text
//! ctl ─┬─ show ──── TABLE      tables that applications declare, with arguments; the running program may have others
//!      ├─ clear ─┬─ counters
//!      │         └─ WORD       requests that applications declare, under the first of their words
//!      ├─ GROUP ─── WORD
//!      └─ reload, diff, save, trace, capture, stop
//! ```
//!
//! Words may be abbreviated, and options of some requests need no dashes: see [`super::words`].

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};
use controlplane::{GroupKind, NameKind, RequestKind, TableKind};

use super::duration;

/// Tables of every pipeline.
const TABLES: &[TableKind] = &[
    TableKind::new("interfaces", "Ports and their traffic"),
    TableKind::new("queues", "Queues of ports and their workers"),
    TableKind::new("stages", "Calls, packets and time of stages"),
    TableKind::new("drops", "Dropped packets by reason, and what to do"),
    TableKind::new("runtime", "Version, workers, devices, memory"),
    TableKind::new("snapshot", "All of these and the hottest rules, at one moment"),
];

/// Names of every pipeline.
const NAMES: &[NameKind] = &[
    NameKind { value: "PORT", table: "interfaces", arguments: &[], field: "name" },
    NameKind { value: "STAGE", table: "stages", arguments: &[], field: "name" },
];

/// The tables of this program, each once.
pub(crate) fn tables() -> Vec<&'static TableKind> {
    let declared = crate::pipelines::descriptors().iter().flat_map(|declared| declared.tables);
    let mut tables: Vec<&'static TableKind> = TABLES.iter().collect();
    for table in declared {
        if tables.iter().all(|known| known.name != table.name) {
            tables.push(table);
        }
    }
    tables
}

/// Where the names come from that arguments may be.
pub(crate) fn names() -> impl Iterator<Item = &'static NameKind> {
    let declared = crate::pipelines::descriptors().iter().flat_map(|declared| declared.names);
    NAMES.iter().chain(declared)
}

/// The options without dashes of the command with these words.
pub(crate) fn keywords_of(words: &[&str]) -> &'static [&'static str] {
    if let ["show", name] = words {
        return tables().iter().find(|table| table.name == *name).map_or(&[], |own| own.keywords);
    }
    let mut declared = crate::pipelines::descriptors().iter().flat_map(|own| own.requests);
    if let Some(kind) = declared.find(|kind| kind.words == words) {
        return kind.keywords;
    }
    match words {
        [group, SHOW] => table_of(group).map_or(&[], |own| own.keywords),
        _ => &[],
    }
}

/// The word below a group that prints its table.
const SHOW: &str = "show";

/// The table of a group.
fn table_of(group: &str) -> Option<&'static TableKind> {
    let mut groups = crate::pipelines::descriptors().iter().flat_map(|own| own.groups);
    let name = groups.find(|own| own.name == group)?.table?;
    tables().into_iter().find(|table| table.name == name)
}

/// `ctl` with its commands. Its arguments begin with a word of `ctl`.
pub(crate) fn tree() -> Command {
    CtlArgs::augment_args(Command::new("ctl").bin_name("shadeline ctl").no_binary_name(true))
}

#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    /// The control socket of the running program [default: /run/shadeline/ctl.sock, else the user's own]
    ///
    /// By default this is /run/shadeline/ctl.sock if an instance listens there, else the socket of the user's own instance:
    /// shadeline.sock in $XDG_RUNTIME_DIR, or /tmp/shadeline-UID.sock. The environment variable SHADELINE_SOCKET names
    /// another one.
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Option<CtlCommand>,
}

/// A command of `ctl`.
#[derive(Debug)]
pub(crate) enum CtlCommand {
    /// One that every pipeline has.
    Core(CoreCommand),
    /// One that an application declares, with its arguments.
    Declared(&'static RequestKind, ArgMatches),
    /// `show` of a table, with its arguments.
    Show(&'static TableKind, ArgMatches),
    /// `show` of a table that this program does not know; the running one may.
    ShowOther(String),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CoreCommand {
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
    /// Watch flows
    #[command(subcommand)]
    Flows(FlowsCommand),
    /// Reset counters, or remove what was learned
    #[command(subcommand)]
    Clear(ClearCommand),
    /// Apply the changed configuration file without packet loss
    Reload,
    /// Print what `ctl` changed since the configuration was read, as a difference of its file
    Diff,
    /// Write the changes made by `ctl` into the configuration file, keep its comments, and reload it
    ///
    /// Without FILE, the instance writes its own file and then reloads it, so that the next reload changes nothing. With
    /// FILE, this command writes the whole changed configuration there, and the running instance is not changed.
    /// Changes that the file format cannot express are listed.
    Save {
        /// Write this file instead; `-` is standard output
        file: Option<PathBuf>,
        /// Write even if the file has changed since the instance read it; its changes are applied, too
        #[arg(long, conflicts_with = "file")]
        force: bool,
    },
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
    /// Drain the queues, stop, and wait for the end of the instance
    Stop,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FlowsCommand {
    /// Watch the flows that send the most, and how many there are in each state
    ///
    /// Keys as in `ctl top`. Rates are of the last interval, of both directions together. Where standard output is not a
    /// terminal, prints the tables once, as with --once. With --json, prints all flows, as `show flows`.
    Top {
        /// Time between two updates, 0.1 to 30 seconds
        #[arg(long, value_parser = interval, value_name = "TIME", default_value = "1s")]
        interval: Duration,
        /// Print the tables once, after one interval
        #[arg(long)]
        once: bool,
    },
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
        let core = CoreCommand::augment_subcommands(command.subcommand(show()));
        let all =
            requests.fold(core, |command, kind| with_request(command, kind, kind.words, &groups));
        groups.iter().fold(all, |command, group| match table_of(group.name) {
            Some(table) if command.find_subcommand(group.name).is_some() => command
                .mut_subcommand(group.name, |own| {
                    own.subcommand(table.named().name(SHOW).alias("list"))
                }),
            _ => command,
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        let declared = crate::pipelines::descriptors();
        name == "show"
            || CoreCommand::has_subcommand(name)
            || declared.iter().flat_map(|declared| declared.requests).any(|r| r.words[0] == name)
    }
}

/// `show` with its tables.
fn show() -> Command {
    let show = Command::new("show")
        .about("Print a table")
        .subcommand_value_name("TABLE")
        .subcommand_help_heading("Tables")
        .after_help("The running program may have other tables.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .allow_external_subcommands(true);
    show.subcommands(tables().into_iter().map(TableKind::named))
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
        [word @ "del"] => command.subcommand(kind.named(word).alias("delete")),
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
        if let Some((group, below)) = matches.subcommand()
            && let Some((SHOW, own)) = below.subcommand()
            && let Some(table) = table_of(group)
        {
            return Ok(Self::Show(table, own.clone()));
        }
        if let Some(("show", matches)) = matches.subcommand() {
            let Some((name, own)) = matches.subcommand() else {
                return Err(Error::new(ErrorKind::MissingSubcommand));
            };
            if let Some(table) = tables().into_iter().find(|table| table.name == name) {
                return Ok(Self::Show(table, own.clone()));
            }
            if own.get_many::<std::ffi::OsString>("").is_some_and(|more| more.len() > 0) {
                let text = format!("the arguments of the table `{name}` are not known here\n");
                return Err(Error::raw(ErrorKind::UnknownArgument, text));
            }
            return Ok(Self::ShowOther(name.to_owned()));
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

    fn try_parse(words: &str) -> Result<CtlArgs, Error> {
        let words = words.split_whitespace().map(str::to_owned).collect();
        let words = crate::cli::words::spelled_out(words).unwrap();
        Ctl::try_parse_from(["ctl".to_owned()].into_iter().chain(words)).map(|ctl| ctl.args)
    }

    fn parse(words: &str) -> CtlArgs {
        try_parse(words).unwrap()
    }

    fn error(words: &str) -> String {
        try_parse(words).unwrap_err().to_string()
    }

    fn call(words: &str) -> Request {
        match parse(words).command {
            Some(CtlCommand::Declared(kind, matches)) => kind.request(&matches).unwrap(),
            Some(CtlCommand::Show(table, matches)) => table.request(&matches).unwrap(),
            other => panic!("{words}: {other:?}"),
        }
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
            ("rule replace --file /dev/null", "rule_replace_all", json!({"rules": []})),
        ] {
            let fields = control::api::fields_of(&fields).unwrap();
            assert_eq!(call(words), Request::Call { name: name.to_owned(), fields }, "{words}");
        }
        // Options of `ctl` may be anywhere.
        let args = parse("rule --json show --socket /s");
        assert!(args.json && args.socket.as_deref() == Some(std::path::Path::new("/s")));
        let Some(CtlCommand::Declared(kind, matches)) = parse("rule add").command else { panic!() };
        assert_eq!(kind.request(&matches).unwrap_err(), "a rule needs a name");
    }

    #[test]
    fn tables_are_shown() {
        assert_eq!(call("show routes"), Request::show("routes"));
        let shown = |what: &str, fields| Request::Show {
            what: what.to_owned(),
            arguments: control::api::fields_of(&fields).unwrap(),
        };
        let longer = json!({"prefix": "10.0.0.0/8", "longer_prefixes": true});
        for (words, what, fields) in [
            ("show routes 10.0.0.0/8 longer-prefixes", "routes", longer),
            ("sh ro 10.0.0.1 --json", "routes", json!({"address": "10.0.0.1"})),
            ("route show", "routes", json!({})),
            ("ro list source static", "routes", json!({"sources": ["static"]})),
            ("name show", "names", json!({})),
            ("show rules ssh stage edge", "rules", json!({"name": "ssh", "stage": "edge"})),
            ("show neighbours dev lan", "neighbours", json!({"dev": "lan"})),
            ("show interfaces", "interfaces", json!({})),
        ] {
            assert_eq!(call(words), shown(what, fields), "{words}");
        }
        // The running program may have tables that this one does not know.
        for words in ["show meters", "show --json meters", "show meters --json"] {
            let args = parse(words);
            assert_eq!(args.json, words.contains("json"));
            let Some(CtlCommand::ShowOther(name)) = args.command else { panic!("{words}") };
            assert_eq!(name, "meters");
        }
        assert!(
            error("show meters x").contains("the arguments of the table `meters` are not known")
        );
        assert!(error("show interfaces x").contains("unexpected argument 'x'"));
        assert!(error("show").contains("Tables:"));
    }

    #[test]
    fn core_commands_are_read() {
        let core = |words: &str| match parse(words).command {
            Some(CtlCommand::Core(command)) => command,
            other => panic!("{words}: {other:?}"),
        };
        assert!(parse("").command.is_none() && parse("--json").command.is_none());
        assert!(matches!(core("clear counters"), CoreCommand::Clear(ClearCommand::Counters)));
        assert!(matches!(core("trace -c 2 icmp"), CoreCommand::Trace { count: 2, .. }));
        let top = core("top --interval 0.5 --once");
        let half = Duration::from_millis(500);
        assert!(matches!(top, CoreCommand::Top { interval, once: true } if interval == half));
        let flows = core("flows top --once");
        assert!(matches!(flows, CoreCommand::Flows(FlowsCommand::Top { once: true, .. })));
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
        let names: Vec<_> = show.get_subcommands().map(|below| below.get_name()).collect();
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
