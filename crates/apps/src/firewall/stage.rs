//! Stage `firewall`: the first rule that matches decides about a packet.
//!
//! | | |
//! | --- | --- |
//! | reads | what [`header`](super::header) says of the packet |
//! | writes | the rule's column; the packets (`mark`); `flags` in a router (`reject`) |
//! | next | what is accepted; in a router what is rejected, too, whose sender `rewrite` answers |
//! | forward | out by the port of `send` as they are |
//! | drop | `firewall_drop`, `firewall_reject`, `firewall_short`, `firewall_malformed` |
//! | emits | copies of `mirror`; in a switch the answers of `reject` |
//!
//! The rules of all packets of a chunk are found by its [shade](super::search), which gives each packet its verdict;
//! the last step counts, and does in the order of the packets what is to be done to them. A router's own answers (ARP,
//! neighbour discovery) and what `decode` gave to Linux are not judged.
//!
//! The last step goes by the rule that was found, not by the verdict: a later stage of the segment may have dropped
//! what this one accepted.

use std::sync::Arc;

use chunk::{Chunk, ColumnSet, Columns, Declaration, Packet, ReasonBlock, Verdict, VerdictKind};
use classify::filter::{WORDS_V4, WORDS_V4_WIDE, WORDS_V6, WORDS_V6_WIDE, widened};
use classify::{Classify, Match};
use engine::{Context, Phases, Shade, Stage};
use packet::Decoded;
use packet::ipv4::set_dscp_v4;
use packet::ipv6::set_dscp_v6;

use super::answer::{Answer, Answers};
use super::columns::Instance;
use super::flow_cache::{FlowCache, KNOWN};
use super::header::{Header, HeaderColumns, Headers};
use super::kernels::{FilterColumns, MALFORMED, NOT_JUDGED, SHORT, UNKNOWN};
use super::reasons::{FIREWALL_MALFORMED, FIREWALL_REJECT, FIREWALL_SHORT};
use super::refused::{Mailbox, Refused};
use super::search::Search;
use super::tables::{Action, Effect, Ending, FirewallTables};
use crate::flow::FlowColumns;
use crate::flow::columns::{NO_SLOT, REPLY, STATE};
use crate::l7::L7Columns;
use crate::ports::PortNames;
use crate::received;
use crate::records::{self, Records};
use crate::router::{RouterColumns, columns as router};

/// Packets whose first line is on its way while one is looked at.
const AHEAD: usize = 4;

/// The stage.
pub struct Firewall {
    instance: Instance,
    answers: Answers,
    shade: Arc<Search>,
    /// No stage before it fills the header columns.
    decodes: bool,
    /// Stages share records.
    shares: bool,
    /// A stage before it tracks flows.
    has_states: bool,
    /// That stage holds fragments back until their datagram is whole.
    has_wholes: bool,
    wholes: Vec<u64>,
    /// A stage before it labels them.
    has_applications: bool,
    /// A router's `rewrite` answers for what is rejected.
    is_in_router: bool,
    names: PortNames,
    /// By row: the rule's id, if the packet was judged.
    found: Vec<u32>,
    /// By row: the state in the flow, and the place of the flow.
    states: Vec<u8>,
    slots: Vec<u32>,
    /// By row: the application of the flow.
    applications: Vec<u32>,
    /// Answers for established flows.
    cache: Option<FlowCache>,
    /// Of what rules drop, for the stage that tracks flows.
    mailbox: Option<Arc<Mailbox>>,
}

impl Firewall {
    /// A stage of one worker: the only firewall of its pipeline, behind a stage that fills the
    /// [header columns](HeaderColumns), and with kernels.
    pub fn new() -> Self {
        Self::of(Instance::ALONE)
    }

    /// The same for one of several firewalls of a pipeline.
    pub fn of(instance: Instance) -> Self {
        Self {
            instance,
            answers: Answers::new(),
            shade: Arc::new(Search { instance, has_kernels: true, first_region: 0 }),
            decodes: false,
            shares: false,
            has_states: false,
            has_wholes: false,
            wholes: Vec::new(),
            has_applications: false,
            is_in_router: false,
            names: PortNames::default(),
            found: Vec::with_capacity(chunk::CHUNK_PACKETS_MAX),
            states: Vec::with_capacity(chunk::CHUNK_PACKETS_MAX),
            slots: Vec::with_capacity(chunk::CHUNK_PACKETS_MAX),
            applications: Vec::with_capacity(chunk::CHUNK_PACKETS_MAX),
            cache: None,
            mailbox: None,
        }
    }

    /// It tells of the packets that rules drop, if there is a mailbox.
    #[must_use]
    pub fn telling(mut self, mailbox: Option<Arc<Mailbox>>) -> Self {
        self.mailbox = mailbox;
        self
    }

    /// It fills the header columns itself, for no stage before it does.
    #[must_use]
    pub fn decoding(mut self) -> Self {
        self.decodes = true;
        self
    }

    /// Stages share records of headers.
    #[must_use]
    pub fn sharing(mut self, shares: bool) -> Self {
        self.shares = shares;
        self
    }

    /// A stage before it tracks flows: rules may ask for the states of packets, and packets of established flows are not
    /// looked up again.
    #[must_use]
    pub fn behind_flow(mut self) -> Self {
        self.has_states = true;
        self.cache = Some(FlowCache::new());
        self
    }

    /// The stage that tracks flows holds fragments back: rules see each as its datagram.
    #[must_use]
    pub fn behind_held(mut self, is_held: bool) -> Self {
        self.has_wholes = is_held;
        self
    }

    /// A stage before it labels flows, behind the one that tracks them: rules may ask for applications.
    #[must_use]
    pub fn behind_l7(mut self) -> Self {
        self.has_applications = true;
        self.cache = self.cache.map(FlowCache::with_applications);
        self
    }

    /// Every packet is looked up, for a comparison.
    #[must_use]
    pub fn without_flow_cache(mut self) -> Self {
        self.cache = None;
        self
    }

    /// It is between a router's `decode` and `rewrite`: rejected packets go on to `rewrite`, which answers them.
    #[must_use]
    pub fn in_router(mut self) -> Self {
        self.is_in_router = true;
        self
    }

    /// Without kernels: for devices that do not have the rules. The stage is then a segment of its own.
    #[must_use]
    pub fn on_cpu(mut self) -> Self {
        self.shade = Arc::new(Search { has_kernels: false, ..*self.shade });
        self
    }

    /// Its part of the tables begins with region `first_region` of a device's image, else with region 0.
    #[must_use]
    pub fn with_first_region(mut self, first_region: usize) -> Self {
        self.shade = Arc::new(Search { first_region, ..*self.shade });
        self
    }

    /// Traces name the ports of actions.
    #[must_use]
    pub fn with_names(mut self, names: PortNames) -> Self {
        self.names = names;
        self
    }

    /// Leaves the limit of a switch's answers to a [`crate::router::ErrorGate`] over all workers, in the order of the
    /// packets: for captures. A router's errors are those of its `rewrite`.
    #[must_use]
    pub fn deferring_answers(mut self) -> Self {
        self.answers.defers = true;
        self
    }

    /// Answers a packet that the shade has rejected, or leaves that to the router.
    #[cold]
    fn reject<T>(
        &mut self,
        chunk: &mut Chunk,
        row: usize,
        tables: &FirewallTables,
        cx: &mut Context<'_, T>,
    ) {
        if self.is_in_router {
            // `rewrite` has the addresses and the ways back. The packet stays settled: stages between pass it over.
            let view = RouterColumns::view(&mut chunk.rows);
            view.flags[row] = router::Answer::rejected(view.flags[row]).encode();
            return;
        }
        let packet = &chunk.packets[row];
        let d = received::decode(packet);
        let now_ns = cx.arrival_ns(packet);
        let answer = self.answers.make(packet, &d, tables.options(), now_ns, cx.pool);
        let port = packet.port;
        match answer {
            Answer::Made(frame) => {
                tables.hits().count_answer(cx.worker, true);
                chunk.emit(row, Verdict::forward(port), frame);
            }
            // Whether it leaves is not known here: the gate counts.
            Answer::Deferred(frame) => chunk.emit(row, Verdict::forward(port), frame),
            Answer::Withheld => tables.hits().count_answer(cx.worker, false),
            Answer::None => {}
        }
    }

    /// Tells of a packet that a rule drops.
    #[cold]
    fn tell<T>(
        &self,
        chunk: &mut Chunk,
        (row, id): (usize, u32),
        tables: &FirewallTables,
        cx: &Context<'_, T>,
    ) {
        let Some(mailbox) = &self.mailbox else { return };
        let packet = &chunk.packets[row];
        let mut own = Refused::new(packet, cx.arrival_ns(packet));
        if self.has_states {
            let view = FlowColumns::view(&mut chunk.rows);
            let (state, slot) = (view.flow_state[row], view.flow_slot[row]);
            let is_of_flow = state & STATE != 0 && slot != NO_SLOT;
            own.flow = is_of_flow.then_some((view.flow_id[row], state & REPLY != 0));
        }
        own.rule = tables.record(id).filter(|_| id != 0).map(|record| record.name.clone());
        mailbox.put(own);
    }

    /// Does what a rule says beside the verdict.
    fn act<T>(
        &mut self,
        chunk: &mut Chunk,
        row: usize,
        action: Action,
        tables: &FirewallTables,
        cx: &mut Context<'_, T>,
    ) {
        if let Some(port) = action.mirror {
            let copy = chunk.packets[row].duplicate(cx.pool);
            tables.hits().count_copy(cx.worker, copy.is_some());
            if let Some(copy) = copy {
                chunk.emit(row, Verdict::forward(port), copy);
            }
        }
        if let Some(dscp) = action.dscp {
            let view = HeaderColumns::view(&mut chunk.rows);
            let (family, l3) = (view.filter_family[row], view.filter_l3[row]);
            mark(&mut chunk.packets[row], family, l3, dscp);
            if self.shares {
                HeaderColumns::view(&mut chunk.rows).record_is_known[row] = 0;
            }
        }
        if action.contexts != 0 {
            HeaderColumns::view(&mut chunk.rows).context[row] |= action.contexts;
        }
        if action.ending == Ending::Reject {
            self.reject(chunk, row, tables, cx);
        }
    }
}

impl Default for Firewall {
    fn default() -> Self {
        Self::new()
    }
}

/// What the shade makes of a packet whose sender is to get an answer.
const REJECTED: Verdict = Verdict::drop(FIREWALL_REJECT);

/// Whether a packet was dropped for what it is, before any rule saw it.
fn is_unseen(verdict: Verdict) -> bool {
    verdict == Verdict::drop(FIREWALL_SHORT) || verdict == Verdict::drop(FIREWALL_MALFORMED)
}

/// Whether the shade dropped the packet of a row that no rule saw. Only the first of several firewalls says so.
fn drops_unseen(chunk: &mut Chunk, row: usize) -> bool {
    let view = HeaderColumns::view(&mut chunk.rows);
    let is_it = matches!(view.filter_family[row], SHORT | MALFORMED);
    let drops = is_it && is_unseen(Verdict(view.verdict[row]));
    if drops {
        view.filter_family[row] = 0;
    }
    drops
}

/// Fills the header columns of packets that are on their way, decoded by a stage before it or here.
fn fill(chunk: &mut Chunk, shares: bool) {
    let Chunk { packets, rows, .. } = chunk;
    let mut view = HeaderColumns::view(rows);
    let verdicts = std::mem::take(&mut view.verdict);
    let (record, is_known) =
        (std::mem::take(&mut view.record), std::mem::take(&mut view.record_is_known));
    let mut records = shares.then(|| Records::new(record, is_known));
    let mut headers = Headers::from(view);
    headers.begin();
    packets.iter().take(AHEAD).for_each(Packet::prefetch);
    let mut d = Decoded::default();
    for (row, packet) in packets.iter().enumerate() {
        if let Some(later) = packets.get(row + AHEAD) {
            later.prefetch();
        }
        if Verdict(verdicts[row]).is_next() {
            let record = match &mut records {
                Some(records) => records.of(row, packet),
                None => {
                    received::decode_into(packet, &mut d);
                    &mut d
                }
            };
            headers.put(row, packet.data(), record, packet.port);
        }
    }
}

impl<T: AsRef<FirewallTables> + Send + Sync + 'static> Stage<T> for Firewall {
    fn name(&self) -> &'static str {
        self.instance.name()
    }

    /// Headers are all that is looked at, and all that is changed.
    fn takes_offloads(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static [Declaration] {
        self.instance.columns(self.is_in_router, self.has_states, self.has_applications)
    }

    fn zeroed(&self) -> ColumnSet {
        if self.shares { records::zeroed() } else { ColumnSet::EMPTY }
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[
            FilterColumns::FILTER_FAMILY,
            FilterColumns::FILTER_HEAD0,
            FilterColumns::FILTER_HEAD1,
            FilterColumns::FILTER_HEAD2,
        ])
    }

    fn writes(&self) -> ColumnSet {
        self.instance.writes()
    }

    fn sets_context(&self) -> Phases {
        Phases::POST
    }

    /// Rules may mark.
    fn changes_packets(&self) -> bool {
        true
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        // No shade sees a chunk whose rows are all settled.
        self.instance.view(&mut chunk.rows).rule.fill(NOT_JUDGED);
        match cx.tables.as_ref().rules() {
            _ if !self.decodes => {}
            Some(_) => fill(chunk, self.shares),
            None => HeaderColumns::view(&mut chunk.rows).filter_family.fill(0),
        }
        if self.has_wholes {
            self.wholes.clear();
            self.wholes.extend_from_slice(FlowColumns::view(&mut chunk.rows).flow_whole);
            Headers::from(HeaderColumns::view(&mut chunk.rows)).put_wholes(&self.wholes);
        }
        if self.has_states {
            // Every firewall does so: what is there may be of another place of the pipeline.
            let states = FlowColumns::view(&mut chunk.rows).flow_state;
            self.states.clear();
            self.states.extend(states.iter().map(|bits| bits & (STATE | REPLY)));
            Headers::from(HeaderColumns::view(&mut chunk.rows)).put_states(&self.states);
        }
        if self.has_applications {
            self.applications.clear();
            self.applications.extend_from_slice(L7Columns::view(&mut chunk.rows).l7_application);
            let view = HeaderColumns::view(&mut chunk.rows);
            Headers::from(view).put_applications(&self.applications);
        }
        let tables = cx.tables.as_ref();
        if let Some(cache) = self.cache.as_mut().filter(|_| tables.wants_flow_cache()) {
            self.slots.clear();
            self.slots.extend_from_slice(FlowColumns::view(&mut chunk.rows).flow_slot);
            cache.select(&self.states, &self.slots);
            cache.recall(&mut self.instance.view(&mut chunk.rows), tables);
        }
    }

    fn shader(&self) -> Option<Arc<dyn Shade<T>>> {
        Some(self.shade.clone())
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        let tables: &FirewallTables = cx.tables.as_ref();
        if tables.rules().is_none() {
            return;
        }
        if let Some(cache) = self.cache.as_mut().filter(|_| tables.wants_flow_cache()) {
            // Another chunk may have been here since.
            let flow = FlowColumns::view(&mut chunk.rows);
            cache.select(flow.flow_state, flow.flow_slot);
            cache.keep(&self.instance.view(&mut chunk.rows), tables);
        }
        self.found.clear();
        self.found.extend_from_slice(self.instance.view(&mut chunk.rows).rule);
        let tells = self.mailbox.is_some();
        let mut settled = 0;
        for row in 0..chunk.packets.len() {
            let id = self.found[row];
            if id >= KNOWN {
                settled += u32::from(id == UNKNOWN || drops_unseen(chunk, row));
                continue;
            }
            let packet = &chunk.packets[row];
            tables.hits().count(cx.worker, id, packet.frame_len(), cx.arrival_ns(packet));
            let effect = tables.effect(id);
            if tells && tables.verdict(id).kind() == VerdictKind::Drop {
                self.tell(chunk, (row, id), tables, cx);
            }
            match effect {
                Effect::None | Effect::Pass => {}
                Effect::Settle => settled += 1,
                Effect::More => {
                    let verdict = tables.verdict(id);
                    // What a router rejects goes on to `rewrite`, as ever.
                    let goes_on = self.is_in_router && verdict == REJECTED;
                    settled += u32::from(!verdict.is_next() && !goes_on);
                    let Some(record) = tables.record(id) else { continue };
                    self.act(chunk, row, record.action, tables, cx);
                }
            }
        }
        cx.count_settled(settled);
    }

    /// The limit of answers goes on.
    fn inherit(&mut self, before: &mut dyn Stage<T>) {
        if let Some(before) = before.as_any().and_then(|before| before.downcast_mut::<Self>()) {
            std::mem::swap(&mut self.answers.limits, &mut before.answers.limits);
        }
    }

    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        Some(self)
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, tables: &T) -> String {
        let tables = tables.as_ref();
        let view = self.instance.view(&mut chunk.rows);
        let (id, verdict) = (view.rule[row], Verdict(view.verdict[row]));
        let record = (id < KNOWN).then(|| tables.record(id)).flatten();
        match record.filter(|_| tables.rules().is_some()) {
            Some(record) if id == 0 => format!("no rule: {}", text(&record.action, &self.names)),
            Some(record) => {
                format!("rule {}: {}", record.name, text(&record.action, &self.names))
            }
            None if is_unseen(verdict) => verdict.reason().text().to_owned(),
            None => "not judged".to_owned(),
        }
    }
}

/// Whether a frame that a switch receives goes on behind its firewall: for those who must know before its turn.
pub fn passes(packet: &Packet, tables: &FirewallTables) -> bool {
    let Some((v4, v6)) = tables.rules() else { return true };
    let d = received::decode(packet);
    let mut best = [Match::NONE];
    let mut classify = |rules: &classify::Tables, header: &[u32]| {
        if rules.words() == header.len() {
            rules.classify(header, &mut best);
        }
    };
    // Nobody has labelled its flow.
    match Header::of(packet.data(), &d, packet.port) {
        Header::Nothing => return true,
        Header::Short | Header::Malformed => return false,
        Header::V4(header) if v4.words() == WORDS_V4_WIDE => {
            classify(v4, &widened::<WORDS_V4, WORDS_V4_WIDE>(header, 0))
        }
        Header::V4(header) => classify(v4, &header),
        Header::V6(header) if v6.words() == WORDS_V6_WIDE => {
            classify(v6, &widened::<WORDS_V6, WORDS_V6_WIDE>(header, 0))
        }
        Header::V6(header) => classify(v6, &header),
    }
    tables.verdict(best[0].id().unwrap_or(0)).is_next()
}

/// An action in words, for traces.
fn text(action: &Action, names: &PortNames) -> String {
    let mut text = match action.ending {
        Ending::Accept => "accept".to_owned(),
        Ending::Drop => "drop".to_owned(),
        Ending::Reject => "reject".to_owned(),
        Ending::Dump => "dump".to_owned(),
        Ending::Send(port) => format!("send {}", names.name(port)),
    };
    if let Some(dscp) = action.dscp {
        text = format!("mark {dscp}, {text}");
    }
    if let Some(port) = action.mirror {
        text = format!("mirror {}, {text}", names.name(port));
    }
    text
}

/// Sets the code point of a packet of a family, whose IP header starts at `l3`.
fn mark(packet: &mut Packet, family: u8, l3: u8, dscp: u8) {
    let Some(ip) = packet.data_mut().get_mut(usize::from(l3)..) else { return };
    match family {
        4 => set_dscp_v4(ip, dscp),
        6 => set_dscp_v6(ip, dscp),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_names_all_ports_of_an_action() {
        let config = "[port.wan]\n[port.lan]\n";
        let (config, _) = control::config::parse(config, &crate::known_stages()).unwrap();
        let action = Action { mirror: Some(1), ..Action::of(Ending::Send(0)) };
        assert_eq!(
            text(&action, &PortNames::of(&controlplane::Interfaces::of(&config))),
            "mirror lan, send wan"
        );
        assert_eq!(text(&action, &PortNames::default()), "mirror port 1, send port 0");
    }
}
