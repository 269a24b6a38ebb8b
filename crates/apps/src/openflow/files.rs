//! Files of flows, groups and meters: carried out as a whole, compared, and in the place of what there is.
//!
//! Errors name the file, the line and the column, and say in words what is wrong.

use std::fmt::Display;
use std::path::Path;

use controlplane::Interfaces;
use flowtable::{FlowControl, Wrong};
use openflow::flow::FlowStats;
use openflow::group::TableCommand;
use openflow::syntax::{FlowText, PortNames, Syntax, SyntaxError};
use openflow::{ErrorCode, FlowCommand, FlowMod, GroupMod, MeterMod, PortNo, Version};

use super::stage::PortNumbers;

/// The ports of the switch by name.
pub(super) fn port_names(
    control: &FlowControl,
    interfaces: &Interfaces,
    ports: PortNumbers,
) -> Vec<(String, PortNo)> {
    let of = |port| (interfaces.name(port).to_owned(), ports.number(port));
    interfaces.ports().map(of).filter(|(_, number)| control.port(*number).is_some()).collect()
}

/// A line of a file.
enum Line {
    Flow(Box<FlowMod>),
    Group(GroupMod),
    Meter(MeterMod),
}

impl Line {
    fn read(syntax: &Syntax<'_>, line: &str) -> Result<Self, SyntaxError> {
        if line.starts_with("group_id=") {
            return syntax.group(line, TableCommand::Add).map(Self::Group);
        }
        if line.starts_with("meter=") {
            return syntax.meter(line, TableCommand::Add).map(Self::Meter);
        }
        let flow = syntax.flows(line)?.pop();
        flow.map(|flow| Self::Flow(Box::new(flow))).ok_or_else(|| SyntaxError {
            line: 1,
            at: 0,
            message: "there is no flow".to_owned(),
        })
    }
}

/// A file, line by line.
struct File<'a> {
    name: &'a str,
    syntax: &'a Syntax<'a>,
    version: Version,
}

impl File<'_> {
    /// The lines that say something, with their numbers, and where they begin.
    fn lines<'t>(&self, text: &'t str) -> impl Iterator<Item = (usize, usize, &'t str)> + use<'t> {
        let of = |(n, line): (usize, &'t str)| {
            let line = line.split('#').next().unwrap_or_default();
            let start = line.len() - line.trim_start().len();
            (n + 1, start, line.trim())
        };
        // The title of what `ovs-ofctl` dumps is none.
        let is_title = |line: &str| {
            let dump = ["OFPST_", "NXST_"].iter().any(|kind| line.starts_with(kind));
            dump && line.contains(" reply") && line.ends_with(':')
        };
        let lines = text.lines().enumerate().map(of);
        lines.filter(move |(.., line)| !line.is_empty() && !is_title(line))
    }

    fn wrong(&self, number: usize, column: usize, reason: &dyn Display) -> String {
        format!("{}:{number}: column {}: {reason}", self.name, column + 1)
    }

    fn read(&self, (number, start, line): (usize, usize, &str)) -> Result<Line, String> {
        let read = Line::read(self.syntax, line);
        read.map_err(|error| self.wrong(number, start + error.at, &error.message))
    }

    /// A line that was read and is refused.
    fn refused(
        &self,
        control: &FlowControl,
        (number, start, line): (usize, usize, &str),
        code: ErrorCode,
    ) -> String {
        let own = (control, self.version);
        let at = refused_at(own, self.syntax, line, FlowCommand::Add, code);
        self.wrong(number, start + at, &code.in_words())
    }
}

/// Where in a flow that is refused the reason is.
fn refused_at(
    (control, version): (&FlowControl, Version),
    syntax: &Syntax<'_>,
    text: &str,
    command: FlowCommand,
    code: ErrorCode,
) -> usize {
    match code {
        ErrorCode::FlowModTableId => text.find("table=").unwrap_or(0),
        _ => syntax.refused_at(text, command, |flow| {
            control.check_flow(flow, version).is_err_and(|own| own == code)
        }),
    }
}

/// Why a flow is refused, and where in its text.
pub(super) fn refused_in_words(
    own: (&FlowControl, Version),
    syntax: &Syntax<'_>,
    text: &str,
    command: FlowCommand,
    code: ErrorCode,
) -> String {
    let at = refused_at(own, syntax, text, command, code);
    format!("column {}: {}", at + 1, code.in_words())
}

/// The text of a file that the configuration names: a regular one.
pub(super) fn text_of(path: &Path) -> Result<String, String> {
    text(path, ::files::read_regular(path, ::files::input::BYTES_MAX))
}

/// The text of a file of the command line: also a pipe, standard input, or compressed.
pub(super) fn text_of_input(path: &Path) -> Result<String, String> {
    text(path, ::files::input::read(path))
}

fn text(path: &Path, bytes: std::io::Result<Vec<u8>>) -> Result<String, String> {
    let name = ::files::input::name(path);
    let bytes = bytes.map_err(|error| format!("{name}: {}", ::files::output::reason(&error)))?;
    String::from_utf8(bytes).map_err(|_| format!("{name}: not text (UTF-8)"))
}

/// Carries out all of a file of flows, groups and meters, or nothing.
pub(super) fn load(
    control: &mut FlowControl,
    (path, text): (&Path, &str),
    by_name: &PortNames,
    version: Version,
    now_ns: u64,
) -> Result<(), String> {
    let name = ::files::input::name(path);
    let syntax = Syntax::with_ports(by_name).for_version(version);
    let file = File { name: &name, syntax: &syntax, version };
    control.all_or_nothing(|control| {
        for line in file.lines(text) {
            let done = match file.read(line)? {
                Line::Flow(flow) => control.flow_mod(&flow, version, now_ns),
                Line::Group(group) => control.group_mod(&group, now_ns),
                Line::Meter(meter) => control.meter_mod(&meter, now_ns),
            };
            done.map_err(|code| file.refused(control, line, code))?;
        }
        Ok(())
    })
}

/// What a replaced set of flows has changed: flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) added: usize,
    pub(super) changed: usize,
    pub(super) removed: usize,
    pub(super) kept: usize,
}

/// The flows of a file, and the lines that they are in.
type Listed<'t> = (Vec<FlowMod>, Vec<(usize, usize, &'t str)>);

/// A line that is not a flow, its text, and what it is.
type Others<'t> = Vec<((usize, usize, &'t str), Line)>;

/// Flows of a file, groups and meters apart.
fn read_all<'t>(file: &File<'_>, text: &'t str) -> Result<(Listed<'t>, Others<'t>), String> {
    let (mut flows, mut places, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for line in file.lines(text) {
        match file.read(line)? {
            Line::Flow(flow) if flow.command != FlowCommand::Add => {
                let reason = "a file that replaces flows has flows alone, no commands";
                return Err(file.wrong(line.0, line.1, &reason));
            }
            Line::Flow(flow) => {
                flows.push(*flow);
                places.push(line);
            }
            other => others.push((line, other)),
        }
    }
    Ok(((flows, places), others))
}

/// Makes the flows of a file those of the switch, all at once or not at all. Groups and meters of the file become what it says;
/// others stay.
pub(super) fn replace(
    control: &mut FlowControl,
    name: &str,
    text: &str,
    syntax: &Syntax<'_>,
    version: Version,
    now_ns: u64,
) -> Result<Changed, String> {
    let file = File { name, syntax, version };
    let ((flows, places), others) = read_all(&file, text)?;
    let mut changed = Changed { added: 0, changed: 0, removed: 0, kept: 0 };
    control.all_or_nothing(|control| {
        for (line, other) in others {
            let done = match other {
                Line::Group(group) => put_group(control, group, now_ns),
                Line::Meter(meter) => put_meter(control, meter, now_ns),
                Line::Flow(_) => Ok(()),
            };
            done.map_err(|code| file.refused(control, line, code))?;
        }
        let done = control.replace(&flows, version, now_ns);
        let refused = |wrong: Wrong| file.refused(control, places[wrong.index], wrong.code);
        let done = done.map_err(refused)?;
        changed = Changed {
            added: done.new.len() - done.changed,
            changed: done.changed,
            removed: done.gone.len() - done.changed,
            kept: done.kept,
        };
        Ok::<_, String>(())
    })?;
    Ok(changed)
}

/// A group as it is to be; one that is so already keeps its counters.
fn put_group(control: &mut FlowControl, group: GroupMod, now_ns: u64) -> Result<(), ErrorCode> {
    let command = match control.group(group.group) {
        Some(own) if own.kind == group.kind && own.buckets == group.buckets => return Ok(()),
        Some(_) => TableCommand::Modify,
        None => TableCommand::Add,
    };
    control.group_mod(&GroupMod { command, ..group }, now_ns)
}

/// See [`put_group`].
fn put_meter(control: &mut FlowControl, meter: MeterMod, now_ns: u64) -> Result<(), ErrorCode> {
    let command = match control.meter_configs(meter.meter).first() {
        Some(own) if own.flags == meter.flags && own.bands == meter.bands => return Ok(()),
        Some(_) => TableCommand::Modify,
        None => TableCommand::Add,
    };
    control.meter_mod(&MeterMod { command, ..meter }, now_ns)
}

/// What `replace` would take away (`-`) and add (`+`), by table and priority.
pub(super) fn difference(
    control: &FlowControl,
    name: &str,
    text: &str,
    syntax: &Syntax<'_>,
    version: Version,
) -> Result<Vec<String>, String> {
    let file = File { name, syntax, version };
    let ((flows, places), _) = read_all(&file, text)?;
    let found = control.differences(&flows, version);
    let found = found.map_err(|wrong| file.refused(control, places[wrong.index], wrong.code))?;
    let gone = found.gone.iter().map(|flow| ('-', flow.stats()));
    let new = found.new.iter().map(|at| ('+', flows[*at].to_flow()));
    let mut all: Vec<(char, FlowStats)> = gone.chain(new).collect();
    // What takes the place of a flow comes behind it.
    all.sort_by_cached_key(|(sign, flow)| {
        let matches = openflow::syntax::MatchText(&flow.matches).to_string();
        (flow.table, u16::MAX - flow.priority, matches, *sign == '+')
    });
    let line = |(sign, flow): &(char, FlowStats)| {
        format!("{sign}{}", FlowText { flow, with_stats: false })
    };
    Ok(all.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use flowtable::Settings;

    use super::*;

    fn names() -> [(String, PortNo); 2] {
        [("lan".to_owned(), PortNo(1)), ("wan".to_owned(), PortNo(2))]
    }

    fn put(control: &mut FlowControl, text: &str) -> Result<Changed, String> {
        replace(control, "flows.txt", text, &Syntax::with_ports(&names()), Version::V13, 1)
    }

    fn diff(control: &FlowControl, text: &str) -> Vec<String> {
        let names = names();
        let syntax = Syntax::with_ports(&names);
        difference(control, "flows.txt", text, &syntax, Version::V13).unwrap()
    }

    fn control() -> FlowControl {
        FlowControl::new(Settings::of_13(4), 100, "linear").0
    }

    /// What `ovs-ofctl` dumps is a file, too: its titles, and what it says of the past of flows, do not count.
    #[test]
    fn a_dump_of_ovs_ofctl_is_a_file() {
        let mut control = control();
        let dump = "OFPST_FLOW reply (OF1.3) (xid=0x2):\n \
                    cookie=0x5, duration=3.2s, table=1, n_packets=7, n_bytes=420, priority=5,tcp actions=output:2\n";
        let done = put(&mut control, dump).unwrap();
        assert_eq!((done.added, control.len()), (1, 1));
        let error = put(&mut control, "OFPST_FLOW\n").unwrap_err();
        assert!(error.contains("`OFPST_FLOW` is not a field"), "{error}");
    }

    #[test]
    fn a_file_becomes_the_flows() {
        let mut control = control();
        let first = "group_id=1,type=all,bucket=output:2\n\
                     meter=1,pktps,bands=type=drop,rate=1000\n\
                     # flows\n\
                     priority=5,tcp,tp_dst=80,actions=meter:1,group:1\n\
                     table=1,udp,actions=wan # the last\n";
        let changed = Changed { added: 2, changed: 0, removed: 0, kept: 0 };
        assert_eq!(put(&mut control, first), Ok(changed));
        let second = "group_id=1,type=all,bucket=output:2\n\
                      priority=5,tcp,tp_dst=80,actions=meter:1,group:1\n\
                      table=1,udp,actions=lan\narp,actions=flood\n";
        let lines = [
            "+arp actions=FLOOD",
            "-table=1, udp actions=output:2",
            "+table=1, udp actions=output:1",
        ];
        assert_eq!(diff(&control, second), lines);
        let group = control.group(1).cloned().unwrap();
        let changed = Changed { added: 1, changed: 1, removed: 0, kept: 1 };
        assert_eq!(put(&mut control, second), Ok(changed));
        assert!(diff(&control, second).is_empty());
        assert!(std::sync::Arc::ptr_eq(&group, control.group(1).unwrap()), "as it was");
        let changed = Changed { added: 0, changed: 0, removed: 3, kept: 0 };
        assert_eq!(put(&mut control, "# nothing\n"), Ok(changed));
        // A group that the file has otherwise changes; its flows stay.
        put(&mut control, second).unwrap();
        let third = second.replace("output:2\n", "output:3\n");
        let changed = Changed { added: 0, changed: 0, removed: 0, kept: 3 };
        assert_eq!(put(&mut control, &third), Ok(changed));
        assert_eq!(control.group(1).unwrap().buckets[0].actions.len(), 1);
        assert!(!std::sync::Arc::ptr_eq(&group, control.group(1).unwrap()));
    }

    #[test]
    fn errors_say_where_and_why() {
        let cases = [
            (
                "tcp,actions=lan\n\n  tcp,actions=output:eth9\n",
                "flows.txt:3: column 22: `eth9` is not a port",
            ),
            (
                "actions=lan,group:7,wan\n",
                "flows.txt:1: column 13: there is no such group (OFPBAC_BAD_OUT_GROUP)",
            ),
            (
                " priority=3,actions=goto_table:9",
                "flows.txt:1: column 21: the next table must exist and have a higher number (OFPBIC_BAD_TABLE_ID)",
            ),
            (
                "ip,table=200,actions=lan",
                "flows.txt:1: column 4: there is no such table (OFPFMFC_BAD_TABLE_ID)",
            ),
            (
                "ip,actions=lan,set_field:1->tcp_dst",
                "flows.txt:1: column 16: the match does not require the header that the action changes \
                 (OFPBAC_MATCH_INCONSISTENT)",
            ),
            (
                "group_id=1,type=all,bucket=group:5",
                "flows.txt:1: column 1: there is no such group (OFPGMFC_UNKNOWN_GROUP)",
            ),
            (
                "delete tcp",
                "flows.txt:1: column 1: a file that replaces flows has flows alone, no commands",
            ),
        ];
        for (text, error) in cases {
            let mut control = control();
            put(&mut control, "udp,actions=lan").unwrap();
            assert_eq!(put(&mut control, text), Err(error.to_owned()), "{text}");
            assert_eq!(control.len(), 1, "nothing has changed");
        }
    }

    #[test]
    fn a_modify_of_13_gives_no_cookie() {
        let text = "cookie=1,tcp,actions=lan\nmodify cookie=1/-1,cookie=7,actions=wan\n";
        let of = |settings, version| {
            let mut control = FlowControl::new(settings, 100, "linear").0;
            let done = load(&mut control, (Path::new("flows.txt"), text), &names(), version, 1);
            done.map(|()| control.flows().map(|flow| flow.cookie).collect::<Vec<_>>())
        };
        assert_eq!(of(Settings::of_10(128), Version::V10), Ok(vec![7]));
        let reason = "flows.txt:2: column 20: `cookie=7` is a new cookie, which a modify of OpenFlow 1.3 cannot give: \
                      cookie=VALUE/MASK says which flows";
        assert_eq!(of(Settings::of_13(4), Version::V13), Err(reason.to_owned()));
    }
}
