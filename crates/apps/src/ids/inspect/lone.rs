//! Packets that belong to no flow, and fragments by themselves.

use control::config::IdsEvent;
use detect::{Packet, Verdict};
use flowlog::eve::{self, Decision, Origin};
use stream::tracker::Input;

use super::hashes::address_hash;
use super::{Decided, Inspector, decided, drops_with, tag, vlans};
use crate::ids::outputs::{Outputs, To};

impl Inspector {
    /// A packet of no flow, in this row; with the number of the flow that it is about.
    pub(super) fn lone(&mut self, input: &Input<'_>, row: Option<usize>, about: Option<u64>) {
        self.end_step();
        let (decoded, frame, time_ns) = (input.decoded, input.frame, input.time_ns);
        let verdict = self.detector.lone(&Packet { decoded, frame, time_ns }, &mut self.alerts);
        self.given_up = self.detector.counts().given_up;
        self.last = row.and_then(|row| self.decide(row, verdict, true));
        self.of_no_flow(input, about, self.last.is_some());
    }

    /// A fragment by itself, for the rules that name fragments; whether its row is dropped.
    pub(super) fn fragment(&mut self, row: usize, input: &Input<'_>) -> bool {
        if !self.detector.rules().asks_for_fragments() {
            return false;
        }
        self.end_step();
        let (decoded, frame, time_ns) = (input.decoded, input.frame, input.time_ns);
        let verdict = self.detector.fragment(&Packet { decoded, frame, time_ns }, &mut self.alerts);
        let is_dropped = self.decide(row, verdict, false).is_some();
        self.of_no_flow(input, None, is_dropped);
        is_dropped
    }

    /// What is done with a row, inline. Who sent it is told only where it `answers`.
    pub(super) fn decide(
        &mut self,
        row: usize,
        verdict: Verdict,
        answers: bool,
    ) -> Option<Decided> {
        let drops = self.is_inline() && verdict.drops;
        let own = drops.then(|| match decided(verdict, false) {
            Decided::Reject { .. } if !answers => {
                Decided::Reject { source: false, destination: false }
            }
            own => own,
        })?;
        self.decide_on(row, own);
        Some(own)
    }

    /// Reports the alerts of a packet.
    fn of_no_flow(&mut self, input: &Input<'_>, about: Option<u64>, is_dropped: bool) {
        let d = input.decoded;
        let (Some(src), Some(dst)) = (d.src_ip(), d.dst_ip()) else { return self.alerts.clear() };
        let ports = d.ports().unwrap_or_default();
        let outputs = self.parts.outputs.clone();
        let origin = Origin {
            flow_id: about,
            src: (src, ports.0),
            dst: (dst, ports.1),
            protocol: d.protocol.0,
            icmp: d.icmp_type_code(),
            vlans: vlans(input),
            in_iface: interface(&outputs, Some(input.port)),
            at_ns: input.time_ns,
        };
        self.strays = self.strays.wrapping_add(1);
        let key = (origin.at_ns, 0, address_hash(src, dst), self.strays);
        tag::alone(&origin, input, &self.parts, &mut self.lines, key);
        self.alone(&origin, is_dropped, Some((d.ip_total_len.into(), input.frame_len.into())));
    }

    /// Reports the alerts of a step without a flow. What is dropped has an event `drop` if its length is known: that of the packet
    /// of IP, and that of the frame.
    pub(super) fn alone(&mut self, origin: &Origin<'_>, is_dropped: bool, len: Option<(u64, u64)>) {
        let outputs = self.parts.outputs.clone();
        let (mut len, frame_len) = (len.map(|own| own.0), len.map_or(0, |own| own.1));
        for alert in std::mem::take(&mut self.alerts) {
            let rule = self.detector.rules().rule(alert.rule);
            let id = (rule.gid, rule.sid);
            self.parts.counters.alert(id, &rule.msg, alert.action.name(), alert.time_ns);
            tag::begin(rule, &alert, (origin, frame_len), &self.parts, None);
            let is_blocked = is_dropped && drops_with(alert.action);
            let report = eve::Alert {
                decision: if is_blocked { Decision::Blocked } else { Decision::Allowed },
                gid: rule.gid,
                sid: rule.sid,
                rev: rule.rev,
                msg: &rule.msg,
                category: &rule.category,
                priority: rule.priority,
                metadata: &rule.metadata,
                to_server: None,
                application: None,
                protocols: Default::default(),
                transaction_id: None,
                transaction: None,
                files: &[],
            };
            // Packets between the same ends come to the same worker, in their order.
            let ends = address_hash(origin.src.0, origin.dst.0);
            self.strays = self.strays.wrapping_add(1);
            let key = (origin.at_ns, 0, ends, self.strays);
            if outputs.has(IdsEvent::Alert) {
                outputs.eve.alert(origin, &report, &mut self.lines.line);
                self.lines.put(To::Eve, key);
            }
            if outputs.has_files() {
                flowlog::fast::alert(origin, &report, &mut self.lines.line);
                self.lines.put(To::Fast, key);
            }
            if is_blocked
                && outputs.has(IdsEvent::Drop)
                && let Some(len) = len.take()
            {
                let dropped = eve::Drop { len, why: eve::Dropped::Rule(report), to_server: None };
                outputs.eve.dropped(origin, &dropped, &mut self.lines.line);
                self.lines.put(To::Eve, key);
            }
        }
    }
}

/// The name of the port with this number; nothing where it is not known.
pub(super) fn interface(outputs: &Outputs, port: Option<u16>) -> &str {
    let port = port.and_then(|port| outputs.ports.get(usize::from(port)));
    port.map_or("", String::as_str)
}
