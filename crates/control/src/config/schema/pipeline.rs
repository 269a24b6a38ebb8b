//! `mode` and `[pipeline.NAME]`. They are declared here and read in `read`, which knows the stages.

use std::time::Duration;

use crate::config::kinds::{Kind, duration, list, name_of};

crate::section! {
    /// Keys before the first section.
    pub(in crate::config) struct TopLevel("") {
        /// Pipeline: a `[pipeline.NAME]` of the file, otherwise a shipped one (`router`, `switch`, `ndn`, `wire`). Its
        /// stages decide what the program is: a router ([router.md](router.md)), a switch ([switch.md](switch.md)), a
        /// named-data forwarder ([ndn.md](ndn.md)) or a firewall between pairs of ports ([firewall.md](firewall.md)).
        restart mode: String = "router".to_owned(), name_of("a pipeline");
    }
}

crate::section! {
    /// A pipeline.
    pub(in crate::config) struct PipelineKeys("pipeline.NAME") {
        /// Stages of the pipeline, in order. Each must find what it needs ([stages.md](stages.md)).
        restart stages: Vec<String> = Vec::new(),
            list(name_of("a stage"), "an array of names of stages").needed("[\"…\"]");
        /// As in `[engine]`, for this pipeline.
        restart max_delay: Option<Duration> = None,
            duration(Duration::ZERO..=Duration::from_secs(1)).optional().shown("that of `[engine]`");
    }
}

crate::section! {
    /// A stage under a name of its own, with the keys of its kind: for a firewall those of `[firewall]`, and its rules in
    /// `[[stage.NAME.rule]]`.
    pub(in crate::config) struct StageKeys("stage.NAME") {
        /// Kind of the stage. Default: its name.
        restart kind: Option<String> = None, name_of("a stage").optional().shown("its name");
        /// Contexts of the packets that the stage sees: those with at least one of them. Rules of a firewall before it
        /// set them (`action = "context web, accept"`). All others pass by. Not for the first and the last stage, nor for
        /// one whose results a later stage needs.
        restart context: Vec<String> = Vec::new(),
            list(name_of("a context"), "an array such as [\"web\"]").shown("all packets");
    }
}
