//! `mode` and `[pipeline.NAME]`. They are declared here and read in `read`, which knows the stages.

use std::path::PathBuf;
use std::time::Duration;

use packet::filter::Filter;

use super::port::path;
use crate::config::kinds::{Custom, Kind, context, custom, duration, list, name_of};
use crate::config::values::{Value, Walk, string, wrong_kind};

crate::section! {
    /// Keys before the first section.
    pub(in crate::config) struct TopLevel("") {
        /// Pipeline: a `[pipeline.NAME]` of the file, otherwise a shipped one (`router`, `switch`, `openflow`, `ndn`, `wire`,
        /// `monitor`). Its stages decide what the program is: a router ([router.md](router.md)), a switch
        /// ([switch.md](switch.md)), an OpenFlow switch ([openflow.md](openflow.md)), a named-data forwarder ([ndn.md](ndn.md)), a firewall between pairs of ports
        /// ([firewall.md](firewall.md)) or a monitor, which follows flows and forwards nothing ([flows.md](flows.md)).
        rebuild mode: String = "router".to_owned(), name_of("a pipeline");
    }
}

crate::section! {
    /// A pipeline.
    pub(in crate::config) struct PipelineKeys("pipeline.NAME") {
        /// Stages of the pipeline, in order. Each must find what it needs ([stages.md](stages.md)).
        rebuild stages: Vec<String> = Vec::new(),
            list(name_of("a stage"), "an array of names of stages").needed("[\"…\"]");
        /// Where stages send packets that go through the pipeline again: place and stage, such as
        /// `{ inner = "route" }`. Default: the stage that has the name of the place.
        rebuild places: Vec<(String, String)> = Vec::new(), places().shown("by name");
        /// As in `[engine]`, for this pipeline.
        rebuild max_delay: Option<Duration> = None,
            duration(Duration::ZERO..=Duration::from_secs(1)).optional().shown("that of `[engine]`");
    }
}

crate::section! {
    /// A stage under a name of its own, with the keys of its kind: for a firewall those of `[firewall]`, and its
    /// rules in `[[stage.NAME.rule]]`.
    pub(in crate::config) struct StageKeys("stage.NAME") {
        /// Kind of the stage. Default: its name.
        rebuild kind: Option<String> = None, name_of("a stage").optional().shown("its name");
        /// The stage sees only packets in at least one of these contexts; all others skip it. An earlier stage
        /// sets them, such as a firewall (`action = "context web, accept"`). A packet that enters the pipeline again
        /// begins without contexts. Not allowed for the first and the last stage, or for a stage whose results a
        /// later stage needs.
        rebuild context: Vec<String> = Vec::new(),
            list(context(), "an array such as [\"web\"]").shown("all packets");
    }
}

crate::section! {
    /// A file for the packets that get the verdict `dump` in a live run, from a firewall (`action = "dump"`) or a
    /// module. No other packets are written to it; `ctl capture` writes those that pass a port or stage. Over captures
    /// all dumped packets are in `dumped.pcapng`.
    #[derive(Eq)]
    pub struct Dump("dump.NAME") {
        /// Path of the capture (pcapng); an existing file is overwritten. It contains packets of all ports, with the
        /// port names. A reload that changes `file` or `filter` begins the capture anew.
        rebuild file: PathBuf = PathBuf::new(), path().needed("\"dump.pcapng\"");
        /// Packet filter ([filters.md](filters.md)): only packets that match are written, such as `tcp and port 80`.
        rebuild filter: Option<String> = None, filter().optional();
    }
    also {
        /// Its name.
        name: String = String::new();
    }
}

fn filter() -> Custom<String> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let text = string(walk, value)?;
        if let Err(error) = Filter::parse(text) {
            walk.error(value.span(), format!("{}: {error}", walk.subject()));
            return None;
        }
        Some(text.to_owned())
    };
    custom("filter", "a packet filter", read, String::clone)
}

pub(in crate::config) fn places() -> Custom<Vec<(String, String)>> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let Some(table) = value.get_ref().as_table() else {
            return wrong_kind(walk, value, "a table such as { inner = \"route\" }");
        };
        let mut all = Vec::new();
        for (place, stage) in table {
            all.push((place.get_ref().to_string(), string(walk, stage)?.to_owned()));
        }
        Some(all)
    };
    let text = |all: &Vec<(String, String)>| {
        all.iter().map(|(place, stage)| format!("{place} = {stage}")).collect::<Vec<_>>().join(", ")
    };
    custom("table", "`{ PLACE = \"STAGE\" }`", read, text).bare()
}
