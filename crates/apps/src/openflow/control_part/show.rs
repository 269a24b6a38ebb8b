//! Tables of `ctl show`: flows, tables, controllers, groups, meters, queues.

use std::time::Duration;

use control::api::ErrorKind;
use control::api::table::thousands;
use controlplane::{Call, Environment, Refusal, Rows};
use openflow::flow::FlowFilter;
use openflow::group::{ALL_GROUPS, ALL_METERS};
use openflow::syntax::{GroupText, InstructionsText, MatchText, MeterText};
use serde_json::json;

use super::OpenFlowControl;
use crate::openflow::channel::Link;
use crate::openflow::queues;

impl OpenFlowControl {
    /// The rows of a table.
    pub(super) fn shown(&self, call: &Call<'_>, env: &Environment<'_>) -> Result<Rows, Refusal> {
        let (now_ns, as_text) = (self.now_ns(env), call.as_text);
        let titles = |titles: &[&str]| titles.iter().map(|title| (*title).to_owned()).collect();
        match call.name {
            "openflow-flows" => {
                let columns =
                    titles(&[">table", ">priority", "match", "actions", ">packets", ">bytes"]);
                let mut rows = Rows::with_columns("openflow-flows", as_text, columns);
                for flow in self.dump(&FlowFilter::all(), now_ns)? {
                    let matches = MatchText(&flow.matches).to_string();
                    let actions = InstructionsText(&flow.instructions).to_string();
                    let value = json!({
                        "table": flow.table, "priority": flow.priority, "match": matches, "actions": actions,
                        "packets": flow.packets, "bytes": flow.bytes, "cookie": flow.cookie,
                    });
                    let any = if matches.is_empty() { "any".to_owned() } else { matches };
                    let (table, priority) = (flow.table.to_string(), flow.priority.to_string());
                    let (packets, bytes) = (thousands(flow.packets), thousands(flow.bytes));
                    rows.push_cells(vec![table, priority, any, actions, packets, bytes], value);
                }
                Ok(rows)
            }
            "openflow-tables" => {
                let columns = titles(&[
                    ">table",
                    ">flows",
                    ">exact",
                    "search",
                    ">words",
                    ">looked up",
                    ">matched",
                ]);
                let mut rows = Rows::with_columns("openflow-tables", as_text, columns);
                for own in self.control.tables() {
                    let [looked_up, matched] = self.lookups(own.table);
                    let value = json!({
                        "table": own.table, "flows": own.flows, "exact": own.exact, "search": own.structure,
                        "words": own.words, "looked_up": looked_up, "matched": matched,
                    });
                    let cells = vec![
                        own.table.to_string(),
                        thousands(own.flows as u64),
                        thousands(own.exact as u64),
                        own.structure.to_owned(),
                        own.words.to_string(),
                        thousands(looked_up),
                        thousands(matched),
                    ];
                    rows.push_cells(cells, value);
                }
                Ok(rows)
            }
            "openflow-controllers" => Ok(self.controllers(now_ns, as_text)),
            "openflow-groups" => {
                let columns = titles(&["group", ">packets", ">bytes"]);
                let mut rows = Rows::with_columns("openflow-groups", as_text, columns);
                let stats = self.control.group_stats(ALL_GROUPS, now_ns);
                for (group, stats) in self.control.group_descs().iter().zip(stats) {
                    let text = GroupText(group).to_string();
                    let value =
                        json!({ "group": text, "packets": stats.packets, "bytes": stats.bytes });
                    rows.push_cells(
                        vec![text, thousands(stats.packets), thousands(stats.bytes)],
                        value,
                    );
                }
                Ok(rows)
            }
            "openflow-meters" => {
                let columns = titles(&["meter", ">packets", ">bytes", ">exceeded"]);
                let mut rows = Rows::with_columns("openflow-meters", as_text, columns);
                let stats = self.control.meter_stats(ALL_METERS, now_ns);
                for (meter, stats) in self.control.meter_configs(ALL_METERS).iter().zip(stats) {
                    let text = MeterText(meter).to_string();
                    let exceeded: u64 = stats.bands.iter().map(|band| band.packets).sum();
                    let value = json!({
                        "meter": text, "packets": stats.packets, "bytes": stats.bytes, "exceeded": exceeded,
                    });
                    let numbers = [stats.packets, stats.bytes, exceeded].map(thousands);
                    rows.push_cells(std::iter::once(text).chain(numbers).collect(), value);
                }
                Ok(rows)
            }
            "openflow-queues" => {
                let columns = titles(&[
                    "port",
                    ">queue",
                    ">min rate",
                    ">max rate",
                    ">packets",
                    ">bytes",
                    ">dropped",
                ]);
                let mut rows = Rows::with_columns("openflow-queues", as_text, columns);
                for (port, own, counters) in queues::rows(&self.shapes, self.ports) {
                    let record = self.ports.port(port).map(usize::from);
                    let record = record.and_then(|port| env.records.get(port));
                    let name = record.map_or_else(|| port.to_string(), |own| own.name.clone());
                    let [packets, bytes, dropped] = counters;
                    let value = json!({
                        "port": name, "queue": own.id, "min_rate": own.min_rate, "max_rate": own.max_rate,
                        "packets": packets, "bytes": bytes, "dropped": dropped,
                    });
                    let rates = [own.min_rate, own.max_rate].map(queues::shown);
                    let cells = [name, own.id.to_string()].into_iter().chain(rates);
                    rows.push_cells(cells.chain(counters.map(thousands)).collect(), value);
                }
                Ok(rows)
            }
            name => Err(Refusal::new(ErrorKind::Internal, format!("no table `{name}`"))),
        }
    }

    /// Controllers, and tools that are connected, as a table.
    fn controllers(&self, now_ns: u64, as_text: bool) -> Rows {
        let titles = [
            "controller",
            "kind",
            "state",
            "role",
            "version",
            ">since",
            ">received",
            ">sent",
            ">lost",
            "last error",
        ];
        let titles = titles.map(str::to_owned).to_vec();
        let mut rows = Rows::with_columns("openflow-controllers", as_text, titles);
        let tools = self.link.iter().flat_map(Link::tools);
        for own in self.link.iter().flat_map(Link::controllers).chain(tools) {
            let kind = own.kind.name();
            let state = if own.version.is_some() { "connected" } else { "disconnected" };
            let role = own.role.map(|role| format!("{role:?}").to_lowercase()).unwrap_or_default();
            let version = own.version.map(|version| version.to_string()).unwrap_or_default();
            let since_s = (!own.since.is_zero())
                .then(|| Duration::from_nanos(now_ns).saturating_sub(own.since).as_secs());
            let protocol = if own.is_tls { "tls" } else { "tcp" };
            let target = format!("{protocol}:{}", own.address);
            let [received, sent] = own.messages;
            let value = json!({
                "controller": target, "kind": kind, "state": state, "role": role, "version": version, "since_s": since_s,
                "received": received, "sent": sent, "lost": own.lost, "last_error": own.last_error,
            });
            let since = since_s.map(|s| format!("{s} s")).unwrap_or_default();
            let error = own.last_error.unwrap_or_default();
            let [received, sent, lost] = [received, sent, own.lost].map(thousands);
            let mut cells = vec![target, kind.to_owned(), state.to_owned(), role, version, since];
            cells.extend([received, sent, lost, error]);
            rows.push_cells(cells, value);
        }
        rows
    }
}
