//! Text as flows, groups and meters: what can be read prints as something that reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use openflow::group::{GroupDesc, TableCommand};
use openflow::syntax::{FlowText, GroupText};
use openflow::{FlowCommand, Syntax};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let syntax = Syntax::new();
    let _ = syntax.meter(text, TableCommand::Add);
    let _ = syntax.filter(text);
    if let Ok(group) = syntax.group(text, TableCommand::Add) {
        let desc = GroupDesc { kind: group.kind, group: group.group, buckets: group.buckets.clone() };
        let printed = GroupText(&desc).to_string();
        assert_eq!(syntax.group(&printed, TableCommand::Add), Ok(group), "{printed}");
    }
    let Ok(flows) = syntax.flows(text) else { return };
    for flow in flows.into_iter().filter(|flow| flow.command == FlowCommand::Add) {
        let flow = flow.to_flow();
        let printed = FlowText { flow: &flow, with_stats: false }.to_string();
        let again = syntax.flow(&printed, FlowCommand::Add).expect(&printed).to_flow();
        let twice = FlowText { flow: &again, with_stats: false }.to_string();
        assert_eq!(printed, twice);
        assert_eq!(again.matches, flow.matches, "{printed}");
    }
});
