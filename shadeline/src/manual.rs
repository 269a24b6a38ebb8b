//! `shadeline man`: the manual pages, one for each command, and shadeline.toml(5).
//!
//! What the command line declares comes from there. Exit statuses, files, environment and examples are data of this
//! module; a page without its own has those of the command above it.

use std::io::Write;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use files::output;

use crate::cli::Cli;
use crate::failure::Failure;

/// A term and what it means.
type Term = (&'static str, &'static str);

/// What the command line does not declare.
struct More {
    /// Words of the command.
    command: &'static str,
    /// Exit statuses beside those of every command.
    statuses: &'static [Term],
    files: &'static [Term],
    environment: &'static [Term],
    /// A command, and what it does.
    examples: &'static [Term],
}

const STATUSES: &[Term] = &[
    ("0", "Success."),
    ("1", "Failure. Standard error has the reason in one line."),
    ("2", "The command line is wrong."),
];

const INTERRUPTED: Term = (
    "130, 143",
    "SIGINT (130) or SIGTERM (143) ended the work early. Files are closed and the totals are printed.",
);

const INPUT: Term = (
    "-",
    "Standard input where a file is read. One input of a command can be `-`. Inputs may be compressed by gzip, xz or zstd.",
);
const STREAMS: Term = (
    "-",
    "Standard input where a file is read, and standard output where a file is written. One input of a command can be `-`. \
     Inputs may be compressed by gzip, xz or zstd.",
);
const CONFIGURATION: Term = ("shadeline.toml", "The configuration; see shadeline.toml(5).");
const SOCKET: Term = (
    "/run/shadeline/ctl.sock",
    "The control socket of a running program; `socket` of `[system]`, `--socket` of `ctl` or the environment variable \
     SHADELINE_SOCKET names another.",
);
const KERNELS: Term =
    ("~/.cache/shadeline/kernels", "Compiled device programs. They may be removed at any time.");
const CACHE: &[Term] = &[
    (
        "SHADELINE_CACHE",
        "The folder of compiled device programs; empty: none are kept. Default: `shadeline/kernels` below \
         `XDG_CACHE_HOME`, or below `~/.cache`.",
    ),
    ("SHADELINE_NVRTC", "The NVRTC library, which compiles device programs for CUDA."),
    ("OPENCL_DYLIB_PATH", "The OpenCL libraries, separated by `;`."),
];
const SOCKET_VARIABLES: [Term; 2] = [
    (
        "SHADELINE_SOCKET",
        "The control socket where neither a configuration nor an option names one.",
    ),
    (
        "XDG_RUNTIME_DIR",
        "The folder of the control socket of a user who cannot write to `/run`: `shadeline.sock` in it.",
    ),
];
/// Read by every command.
const COLORS: &[Term] = &[
    ("NO_COLOR", "If it is not empty: no colours, unless `--color always` is given."),
    ("CLICOLOR_FORCE", "If it is neither empty nor `0`: colours also where there is no terminal."),
];
const NONE: &[Term] = &[];

const PAGES: &[More] = &[
    More {
        command: "",
        statuses: &[],
        files: &[CONFIGURATION, SOCKET, KERNELS, STREAMS],
        environment: &[
            CACHE[0],
            CACHE[1],
            CACHE[2],
            SOCKET_VARIABLES[0],
            SOCKET_VARIABLES[1],
            (
                "PAGER",
                "The program that shows the pages of `shadeline help` on a terminal; default: `less`. Empty or `cat`: \
                 none.",
            ),
        ],
        examples: &[
            ("shadeline demo", "See the router at work, without configuration or privileges."),
            ("shadeline check router.toml", "Check a configuration."),
            ("shadeline run router.toml -r in.pcap -w out", "Try it on a capture."),
            ("shadeline run router.toml", "Run it."),
            ("shadeline help router", "Read about the router."),
        ],
    },
    More {
        command: "demo",
        statuses: &[],
        files: &[KERNELS],
        environment: CACHE,
        examples: &[
            ("shadeline demo", "Forward a capture and four million packets."),
            ("shadeline demo --backend opencl --json", "The same on an OpenCL device, as JSON."),
        ],
    },
    More {
        command: "run",
        statuses: &[
            (
                "0",
                "Success. A live run ends so with its --duration, `shadeline ctl stop`, SIGINT or SIGTERM.",
            ),
            INTERRUPTED,
        ],
        files: &[
            CONFIGURATION,
            SOCKET,
            INPUT,
            ("DIR/PORT.pcapng", "With -w: the packets that left by a port."),
            ("DIR/dropped.pcapng", "With -w: dropped packets, each with its reason as a comment."),
            ("DIR/dumped.pcapng", "With -w: packets with the verdict dump, if there are any."),
            ("DIR/stats.json", "With -w: the totals. It is removed at the start of a run."),
            KERNELS,
        ],
        environment: &[CACHE[0], CACHE[1], CACHE[2], SOCKET_VARIABLES[0], SOCKET_VARIABLES[1]],
        examples: &[
            ("shadeline run router.toml", "Forward packets until a signal or `ctl stop`."),
            (
                "shadeline run router.toml -r lan=in.pcap.zst -w out",
                "Receive a compressed capture on port lan; write what leaves.",
            ),
            (
                "tcpdump -i eth0 -w - | shadeline run router.toml -r -",
                "Receive packets from a pipe; print the totals only.",
            ),
        ],
    },
    More {
        command: "check",
        statuses: &[("1", "The configuration has errors, or it cannot be read.")],
        files: &[CONFIGURATION, INPUT],
        environment: NONE,
        examples: &[
            ("shadeline check router.toml", "Print all errors and warnings."),
            (
                "shadeline check --live router.toml",
                "Check that it can start on this machine, too: interfaces, capabilities, socket.",
            ),
            ("shadeline check -v router.toml", "Print every warning."),
            ("shadeline check --json router.toml", "Print them for a program."),
        ],
    },
    More {
        command: "ctl",
        statuses: &[("1", "No instance is running, or it refused the request.")],
        files: &[
            SOCKET,
            STREAMS,
            ("~/.local/state/shadeline/history", "The history of the shell."),
        ],
        environment: &[
            SOCKET_VARIABLES[0],
            SOCKET_VARIABLES[1],
            ("XDG_STATE_HOME", "The folder of `shadeline/history`; default: `~/.local/state`."),
        ],
        examples: &[
            ("shadeline ctl", "Start a shell; `?` lists what may come next."),
            ("shadeline ctl show interfaces", "Ports and their traffic."),
            (
                "shadeline ctl show routes 203.0.113.0/24 longer-prefixes",
                "Routes of all prefixes within a prefix.",
            ),
            (
                "shadeline ctl route add default via 192.0.2.1 dev lan",
                "Add a route, in the words of ip-route(8).",
            ),
            ("shadeline ctl diff", "Print the changes that were made by ctl."),
            ("shadeline ctl save", "Write them into the configuration file."),
            ("shadeline ctl show drops", "Dropped packets by reason, and what to do."),
            ("shadeline ctl top", "Watch ports, stages, drops, rules, workers and devices."),
            ("shadeline ctl top --once --interval 5s", "Print the tables with the rates of 5 s."),
            ("shadeline ctl flows top", "Watch the flows that send the most."),
            ("shadeline ctl clear counters", "Reset all counters."),
            ("shadeline ctl reload", "Apply a changed configuration."),
            ("shadeline ctl trace -c 3 icmp", "Trace three ICMP packets through the stages."),
            ("shadeline ctl capture lan -w - | tcpdump -r -", "See the packets of port lan."),
            ("shadeline ctl capture drops -w drops.pcapng -c 100", "Capture 100 dropped packets."),
            ("shadeline ctl stop", "Drain the queues, stop, and wait for the end."),
        ],
    },
    More {
        command: "restore",
        statuses: &[("1", "Some settings could not be restored.")],
        files: &[(
            "/run/shadeline/ports",
            "What settings interfaces had before, a file for each that an instance uses or used when it was killed.",
        )],
        environment: NONE,
        examples: &[("shadeline restore", "Restore what an instance left that was killed.")],
    },
    More {
        command: "stages",
        statuses: &[],
        files: &[("none", "This command reads and writes no files.")],
        environment: NONE,
        examples: &[
            ("shadeline stages", "List all stages."),
            ("shadeline stages route", "What the stage route needs, provides, drops and counts."),
        ],
    },
    More {
        command: "devices",
        statuses: &[("1", "A device failed its self-test or its measurement.")],
        files: &[KERNELS],
        environment: CACHE,
        examples: &[
            ("shadeline devices", "Test and measure all devices."),
            ("shadeline devices --quick --json", "Test them only; print JSON."),
        ],
    },
    More {
        command: "lpm",
        statuses: &[],
        files: &[STREAMS],
        environment: CACHE,
        examples: &[
            (
                "shadeline lpm --routes routes.txt.gz --addresses addresses.txt --results out.txt",
                "Look up the addresses of a file.",
            ),
            (
                "echo 192.0.2.1 | shadeline lpm --routes routes.txt --addresses - --results -",
                "Look up one address.",
            ),
        ],
    },
    More {
        command: "streams",
        statuses: &[INTERRUPTED],
        files: &[STREAMS],
        environment: NONE,
        examples: &[
            ("shadeline streams -r capture.pcap", "Print the TCP connections of a capture."),
            (
                "zcat capture.pcap.gz | shadeline streams -r - --filter tcp --json",
                "One JSON object per connection, of packets that match a filter.",
            ),
        ],
    },
    More {
        command: "ids",
        statuses: &[INTERRUPTED],
        files: &[STREAMS],
        environment: NONE,
        examples: &[
            ("shadeline ids -T -S local.rules", "Test a file of rules."),
            (
                "shadeline ids -r capture.pcap -S local.rules -l out --set HOME_NET=192.0.2.0/24",
                "Write what the rules find in a capture into out/eve.json and out/fast.log.",
            ),
        ],
    },
    More {
        command: "l7",
        statuses: &[INTERRUPTED],
        files: &[STREAMS],
        environment: NONE,
        examples: &[
            ("shadeline l7 -r capture.pcap", "Print the applications of a capture."),
            (
                "shadeline l7 -r captures --patterns /etc/l7-protocols --json",
                "One JSON object per flow of all captures in a folder, with patterns of l7-filter.",
            ),
        ],
    },
    More {
        command: "names",
        statuses: &[],
        files: &[STREAMS],
        environment: NONE,
        examples: &[(
            "echo /org/example/a | shadeline names --routes prefixes.txt --names - --results -",
            "Look up one name.",
        )],
    },
    More {
        command: "classify",
        statuses: &[],
        files: &[STREAMS],
        environment: CACHE,
        examples: &[
            (
                "shadeline classify --rules acl1 --trace acl1_trace",
                "Compare all structures on the headers of a trace.",
            ),
            (
                "shadeline classify --rules acl1.xz --trace - --algorithm auto --matches -",
                "Print the best rule of each header on standard input.",
            ),
            (
                "shadeline classify --rules acl1 --explain '10.0.0.1 192.0.2.1 1024 80 tcp'",
                "Show which rules match a header.",
            ),
        ],
    },
    More {
        command: "gen",
        statuses: &[
            ("0", "Success. Packets to an interface end so with SIGINT and SIGTERM, too."),
            INTERRUPTED,
        ],
        files: &[STREAMS],
        environment: NONE,
        examples: &[
            ("shadeline gen packets --count 1000 -w load.pcap", "Write a capture."),
            (
                "shadeline gen packets --count 1000 -w - | shadeline run router.toml -r -",
                "Send generated packets through a configuration.",
            ),
            ("shadeline gen rules --rules 1000 -w rules", "Write 1,000 rules."),
            ("shadeline gen trace --rules rules --count 10000 -w trace", "Write headers for them."),
        ],
    },
    More {
        command: "measure",
        statuses: &[("1", "Failure, or no rate kept the limit of --max-loss."), INTERRUPTED],
        files: &[("none", "This command reads and writes no files.")],
        environment: NONE,
        examples: &[
            (
                "shadeline measure --tx eth1 --rx eth2 --dst-mac 02:00:00:00:01:01 --rate 100kpps",
                "Loss and latency at one rate.",
            ),
            (
                "shadeline measure --tx eth1 --rx eth2 --dst-mac 02:00:00:00:01:01 --max-loss 0.1",
                "The highest rate with at most 0.1 % of loss.",
            ),
        ],
    },
    More {
        command: "bench",
        statuses: &[("1", "Failure, or a figure misses its bound.")],
        files: &[KERNELS],
        environment: CACHE,
        examples: &[
            ("shadeline bench lpm4", "Lookups of IPv4 addresses by each table."),
            ("shadeline bench forward", "Packets per second through the pipelines."),
        ],
    },
    More {
        command: "completions",
        statuses: &[],
        files: &[(
            "/usr/share/bash-completion/completions/shadeline",
            "Where bash looks for the completions.",
        )],
        environment: NONE,
        examples: &[("shadeline completions bash > shadeline.bash", "Completions for bash.")],
    },
    More {
        command: "man",
        statuses: &[],
        files: &[
            ("FOLDER/shadeline*.1", "A page for each command."),
            ("FOLDER/shadeline.toml.5", "The page of the configuration file."),
        ],
        environment: NONE,
        examples: &[(
            "shadeline man man && man -l man/shadeline-run.1",
            "Write the pages and read one.",
        )],
    },
];

/// Writes all pages into a folder.
pub(crate) fn write(folder: &Path) -> Result<(), Failure> {
    if files::is_standard(folder) {
        let what = "each command has a page of its own, so they need a folder";
        return Err(Failure::usage(what));
    }
    crate::output::folder(folder)?;
    for (name, page) in pages()? {
        let path = folder.join(name);
        let written = output::create(&path).and_then(|mut file| file.write_all(&page));
        written.map_err(|error| Failure::output(&path, &error))?;
    }
    Ok(())
}

/// The name and the text of each page.
fn pages() -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut all = Vec::new();
    add(&root(), &[], &mut all).map_err(Failure::other)?;
    let toml = control::config::manual::roff(&control::config::keys());
    all.push(("shadeline.toml.5".to_owned(), toml.into_bytes()));
    Ok(all)
}

/// The commands, without the `help` that every group has for itself.
fn root() -> Command {
    fn without_help(command: Command) -> Command {
        command.disable_help_subcommand(true).mut_subcommands(without_help)
    }
    let mut root = without_help(Cli::command());
    root.build();
    root
}

/// Adds the page of a command and of those below it.
fn add(
    command: &Command,
    words: &[String],
    all: &mut Vec<(String, Vec<u8>)>,
) -> std::io::Result<()> {
    for below in below_of(command) {
        add(below, &[words, &[below.get_name().to_owned()]].concat(), all)?;
    }
    let man = Man::new(command.clone());
    let man = man.source(concat!("Shadeline ", env!("CARGO_PKG_VERSION"))).manual("Shadeline");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend(synopsis(command, &man)?);
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if below_of(command).next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    more(words).to_writer(&mut page)?;
    all.push((man.get_filename(), page));
    Ok(())
}

/// The synopsis, without the arguments that the help does not show either.
fn synopsis(command: &Command, man: &Man) -> std::io::Result<Vec<u8>> {
    let mut section = Vec::new();
    man.render_synopsis_section(&mut section)?;
    let mut text = String::from_utf8_lossy(&section).into_owned();
    for hidden in command.get_positionals().filter(|arg| arg.is_hide_set()) {
        for name in hidden.get_value_names().unwrap_or_default() {
            text = text.replace(&format!(" [\\fI{name}\\fR]"), "");
        }
    }
    Ok(text.into_bytes())
}

fn below_of(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set())
}

/// The sections that are data of this module.
fn more(words: &[String]) -> Roff {
    let own = (0..=words.len()).rev().find_map(|n| {
        let command = words[..n].join(" ");
        PAGES.iter().find(|more| more.command == command)
    });
    let mut roff = Roff::new();
    let Some(own) = own else { return roff };
    let of_every =
        STATUSES.iter().filter(|(status, _)| own.statuses.iter().all(|(s, _)| s != status));
    let mut statuses: Vec<Term> = of_every.chain(own.statuses).copied().collect();
    statuses.sort_by_key(|(status, _)| status.split(',').next().and_then(|n| n.parse::<u8>().ok()));
    section(&mut roff, "EXIT STATUS", &statuses);
    section(&mut roff, "FILES", own.files);
    section(&mut roff, "ENVIRONMENT", &[own.environment, COLORS].concat());
    roff.control("SH", ["EXAMPLES"]);
    for (command, text) in examples(own, words) {
        roff.control("PP", []);
        roff.text(formatted(text));
        roff.control("PP", []);
        roff.control("RS", ["4"]);
        roff.control("nf", []);
        roff.text([roman(command)]);
        roff.control("fi", []);
        roff.control("RE", []);
    }
    roff.control("SH", ["SEE ALSO"]);
    let see = if words.is_empty() { "" } else { "shadeline(1), " };
    roff.text([roman(format!("{see}shadeline.toml(5); shadeline help TOPIC"))]);
    roff
}

/// The examples of a page: of those that it shares with the command above it, the ones that use it, if any does.
fn examples(own: &'static More, words: &[String]) -> Vec<Term> {
    let command = format!("shadeline {}", words.join(" "));
    let used = |(example, _): &&Term| example.contains(command.trim_end());
    match own.examples.iter().any(|example| used(&example)) {
        true => own.examples.iter().filter(used).copied().collect(),
        false => own.examples.to_vec(),
    }
}

fn section(roff: &mut Roff, title: &str, terms: &[Term]) {
    roff.control("SH", [title]);
    for (term, text) in terms {
        if *term == "none" {
            roff.text(formatted(text));
            continue;
        }
        roff.control("TP", []);
        roff.text([bold(*term)]);
        roff.text(formatted(text));
    }
}

/// Text with code in bold.
fn formatted(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 0 { roman(part) } else { bold(part) }).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// Every command that has a page of its own, by its words.
    fn commands() -> Vec<Vec<String>> {
        fn add(command: &Command, words: &[String], all: &mut Vec<Vec<String>>) {
            all.push(words.to_vec());
            for below in below_of(command) {
                add(below, &[words, &[below.get_name().to_owned()]].concat(), all);
            }
        }
        let mut all = Vec::new();
        add(&root(), &[], &mut all);
        all
    }

    #[test]
    fn pages_are_not_one_stream() {
        let refused = write(Path::new("-")).unwrap_err();
        assert!(refused.into_message().contains("need a folder") && !Path::new("-").exists());
    }

    #[test]
    fn every_page_has_every_section() {
        let pages = pages().unwrap();
        let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for words in commands() {
            let name = [&["shadeline".to_owned()][..], &words].concat().join("-") + ".1";
            let (_, page) = pages.iter().find(|(own, _)| *own == name).expect(&name);
            let page = String::from_utf8_lossy(page);
            for section in [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "EXIT STATUS",
                "FILES",
                "ENVIRONMENT",
                "EXAMPLES",
                "SEE ALSO",
            ] {
                let title = |line: &str| {
                    line.strip_prefix(".SH ").is_some_and(|own| own.trim_matches('"') == section)
                };
                assert_eq!(page.lines().filter(|line| title(line)).count(), 1, "{name}: {section}");
            }
        }
        assert!(names.contains(&"shadeline.toml.5"));
        assert!(!names.iter().any(|name| name.contains("programs")), "{names:?}");
    }

    #[test]
    fn hidden_arguments_are_in_no_page() {
        fn hidden(command: &Command, words: &[String], all: &mut Vec<(String, String)>) {
            for arg in command.get_positionals().filter(|arg| arg.is_hide_set()) {
                let page = [&["shadeline".to_owned()][..], words].concat().join("-") + ".1";
                let names = arg.get_value_names().unwrap_or_default();
                all.extend(names.iter().map(|name| (page.clone(), name.to_string())));
            }
            for below in below_of(command) {
                hidden(below, &[words, &[below.get_name().to_owned()]].concat(), all);
            }
        }
        let mut all = Vec::new();
        hidden(&root(), &[], &mut all);
        assert!(all.iter().any(|(page, _)| page == "shadeline-ctl-route-add.1"), "{all:?}");
        let pages = pages().unwrap();
        for (name, argument) in all {
            let (_, page) = pages.iter().find(|(own, _)| *own == name).expect(&name);
            let page = String::from_utf8_lossy(page);
            assert!(
                page.contains("\n.SH SYNOPSIS\n") && !page.contains(&argument),
                "{name}: {argument}"
            );
        }
    }

    #[test]
    fn every_command_has_data_of_its_own() {
        for command in below_of(&Cli::command()) {
            let name = command.get_name();
            assert!(PAGES.iter().any(|more| more.command == name), "no data of `{name}`");
        }
        for more in PAGES {
            assert!(!more.files.is_empty() && !more.examples.is_empty());
        }
    }

    #[test]
    fn the_configuration_of_the_manual_page_is_valid() {
        let pages = pages().unwrap();
        let (_, page) = pages.iter().find(|(name, _)| name == "shadeline.toml.5").unwrap();
        let page = String::from_utf8_lossy(page).replace("\\-", "-");
        let blocks = page.split("\n.nf\n").skip(1).filter_map(|rest| rest.split("\n.fi\n").next());
        let text = blocks.collect::<Vec<_>>().join("\n");
        assert!(text.contains("[[rule]]"), "{page}");
        let (config, warnings) =
            control::config::parse(&text, &crate::pipelines::known()).expect(&text);
        assert!(warnings.is_empty() && config.ports.len() == 2, "{warnings:?}");
        for section in ["FILES", "EXAMPLES", "\"SEE ALSO\""] {
            assert!(page.contains(&format!("\n.SH {section}\n")), "{section}");
        }
    }

    #[test]
    fn examples_are_command_lines() {
        for (example, _) in PAGES.iter().flat_map(|more| more.examples) {
            for line in example.split(" | ").flat_map(|line| line.split(" && ")) {
                // Topics are no commands.
                if !line.starts_with("shadeline ") || line.starts_with("shadeline help ") {
                    continue;
                }
                // One argument may be in quotes.
                let words = line.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
                    0 => part.split_whitespace().collect(),
                    _ => vec![part],
                });
                let words = words.take_while(|word| *word != ">").map(Into::into).collect();
                let words = crate::cli::words::of_command_line(words).expect(example);
                if let Err(error) = Cli::try_parse_from(&words) {
                    panic!("{example}: {error}");
                }
            }
        }
    }
}
