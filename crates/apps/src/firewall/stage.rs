//! Stage `firewall`: the first rule that matches decides about a packet.
//!
//! | | |
//! | --- | --- |
//! | reads | the packets; `flags` and `interface` in a router |
//! | writes | the packets (`mark`); `flags` in a router (`reject`) |
//! | next | what is accepted; in a router what is rejected, too, whose sender `rewrite` tells |
//! | forward | out by the port of `send` as they are |
//! | drop | `firewall_drop`, `firewall_reject`, `firewall_short`, `firewall_malformed` |
//! | emits | copies of `mirror`; in a switch the answers of `reject` |
//!
//! All packets of a chunk are looked at first, each family is classified in one batch, then each packet is
//! acted on in its order. A router's own answers (ARP, neighbour discovery) and what `decode` gave to Linux are
//! not judged.
//!
//! On the CPU the stage does all of this in its last step, from the packets. In its [device form](super::search) the
//! first step writes the headers to columns, the second one finds the rules, and the last one acts. It ends its
//! segment: what follows must see what was dropped, rejected or sent elsewhere.

use std::sync::Arc;

use chunk::{Chunk, ColumnSet, Columns, Declaration, DropReason, Packet, ReasonBlock, Verdict};
use classify::filter::{WORDS_V4, WORDS_V6};
use classify::{Classify, Match};
use engine::{Context, Shade, Stage};
use kernels::FilterColumns;
use packet::ipv4::set_dscp_v4;
use packet::ipv6::set_dscp_v6;
use packet::{Decoded, Kind};

use super::answer::{Answer, Answers};
use super::columns::column;
use super::reasons;
use super::search::Search;
use super::sight::{Sight, look};
use super::tables::{Action, Ending, FirewallTables, Record};
use crate::router::{RouterColumns, columns as router};
use crate::switch::SwitchColumns;

/// Rows that are classified at once.
pub(super) const BATCH: usize = chunk::CHUNK_PACKETS_MAX;

/// Packets whose first line is on its way while one is looked at.
const AHEAD: usize = 4;

/// The application whose pipeline the stage stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Behind `decode`.
    Router,
    /// Behind `bridge_in`.
    Switch,
}

/// The stage.
pub struct Firewall {
    place: Place,
    answers: Answers,
    form: Form,
    /// By row: the rule's id, 0 for none, if the packet is judged.
    found: Vec<Option<u32>>,
}

/// Where the rules of packets are found.
enum Form {
    /// In the last step, here.
    Cpu(Batch<WORDS_V4>, Batch<WORDS_V6>),
    /// In the second step, which a device can take; and by row: the interface of a packet that is judged.
    Device(Arc<Search>, Vec<Option<u16>>),
}

/// Headers of one family, with their rows.
struct Batch<const WORDS: usize> {
    headers: Vec<[u32; WORDS]>,
    rows: Vec<u16>,
}

impl<const WORDS: usize> Batch<WORDS> {
    fn new() -> Self {
        Self { headers: Vec::with_capacity(BATCH), rows: Vec::with_capacity(BATCH) }
    }

    fn push(&mut self, row: usize, header: [u32; WORDS]) {
        self.headers.push(header);
        self.rows.push(row as u16);
    }

    /// Classifies what was gathered, and forgets it.
    fn classify(&mut self, rules: &classify::Tables, found: &mut [Option<u32>]) {
        let mut best = [Match::NONE; BATCH];
        for (headers, rows) in self.headers.chunks(BATCH).zip(self.rows.chunks(BATCH)) {
            let best = &mut best[..headers.len()];
            best.fill(Match::NONE);
            if rules.words() == WORDS {
                rules.classify(headers.as_flattened(), best);
            }
            for (row, best) in rows.iter().zip(best) {
                found[usize::from(*row)] = Some(best.id().unwrap_or(0));
            }
        }
        self.headers.clear();
        self.rows.clear();
    }
}

impl Firewall {
    /// A stage of one worker, which classifies there.
    pub fn new(place: Place) -> Self {
        Self::with(place, Form::Cpu(Batch::new(), Batch::new()))
    }

    /// A stage of one worker in its device form, over the columns of [`Place::columns_for_device`].
    pub fn for_device(place: Place) -> Self {
        Self::with(place, Form::Device(Arc::new(Search), Vec::with_capacity(BATCH)))
    }

    /// Leaves the limit of a switch's answers to a [`crate::router::ErrorGate`] over all workers, in the order of the
    /// packets: for captures. A router's errors are those of its `rewrite`.
    pub fn deferring_answers(mut self) -> Self {
        self.answers.defers = true;
        self
    }

    fn with(place: Place, form: Form) -> Self {
        Self { place, answers: Answers::new(), form, found: Vec::with_capacity(BATCH) }
    }

    /// By row: the rule of each packet that is judged.
    fn find(&mut self, chunk: &mut Chunk, rules: (&classify::Tables, &classify::Tables)) {
        self.found.clear();
        match &mut self.form {
            Form::Cpu(v4, v6) => {
                self.found.resize(chunk.packets.len(), None);
                judge(self.place, chunk, (v4, v6), rules, &mut self.found);
            }
            Form::Device(search, _) => search.take(&mut chunk.rows, rules, &mut self.found),
        }
    }

    /// Ends a packet whose sender is to be told.
    #[cold]
    fn reject<T>(
        &mut self,
        chunk: &mut Chunk,
        row: usize,
        tables: &FirewallTables,
        cx: &mut Context<'_, T>,
    ) {
        if self.place == Place::Router {
            // `rewrite` has the addresses and the ways back.
            let view = RouterColumns::view(&mut chunk.rows);
            view.flags[row] = router::Answer::rejected(view.flags[row]).encode();
            return;
        }
        let packet = &chunk.packets[row];
        let d = packet::decode(packet.data(), packet.frame_len());
        let now_ns = cx.arrival_ns(packet);
        let answer = self.answers.make(packet, &d, tables.options(), now_ns, cx.pool);
        let port = packet.port;
        match answer {
            Answer::Made(frame) => {
                tables.hits().count_answer(cx.worker, true);
                chunk.emit(row, Verdict::forward(port), frame);
            }
            // Whether it leaves nobody here will know: the gate counts.
            Answer::Deferred(frame) => chunk.emit(row, Verdict::forward(port), frame),
            Answer::Withheld => tables.hits().count_answer(cx.worker, false),
            Answer::None => {}
        }
        set(self.place, chunk, row, Verdict::drop(reasons::FIREWALL_REJECT));
    }

    /// Does what a rule says.
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
            mark(&mut chunk.packets[row], dscp);
        }
        match action.ending {
            Ending::Accept => {}
            Ending::Drop => {
                set(self.place, chunk, row, Verdict::drop(reasons::FIREWALL_DROP));
            }
            Ending::Send(port) => set(self.place, chunk, row, Verdict::forward(port)),
            Ending::Reject => self.reject(chunk, row, tables, cx),
        }
    }
}

/// Looks at the packets, and finds the rule of each that is judged.
fn judge(
    place: Place,
    chunk: &mut Chunk,
    (v4, v6): (&mut Batch<WORDS_V4>, &mut Batch<WORDS_V6>),
    rules: (&classify::Tables, &classify::Tables),
    found: &mut [Option<u32>],
) {
    let rows = Rows::of(place, &mut chunk.rows);
    let packets = &chunk.packets;
    packets.iter().take(AHEAD).for_each(Packet::prefetch);
    let mut d = Decoded::default();
    for (row, packet) in packets.iter().enumerate() {
        if let Some(later) = packets.get(row + AHEAD) {
            later.prefetch();
        }
        let Some(interface) = rows.judged(row, packet) else { continue };
        match look(packet, interface, &mut d) {
            Sight::Nothing => {}
            Sight::Never(reason) => rows.verdict[row] = Verdict::drop(reason).0,
            Sight::V4(header) => v4.push(row, header),
            Sight::V6(header) => v6.push(row, header),
        }
    }
    v4.classify(rules.0, found);
    v6.classify(rules.1, found);
}

/// Looks at the packets, and writes the header of each that is judged to its columns.
fn fill(place: Place, chunk: &mut Chunk, interfaces: &mut Vec<Option<u16>>) {
    let packets = &chunk.packets;
    let rows = Rows::of(place, &mut chunk.rows);
    interfaces.clear();
    interfaces.extend(packets.iter().enumerate().map(|(row, packet)| rows.judged(row, packet)));
    let view = FilterColumns::view(&mut chunk.rows);
    packets.iter().take(AHEAD).for_each(Packet::prefetch);
    let mut d = Decoded::default();
    for (row, (packet, interface)) in packets.iter().zip(interfaces).enumerate() {
        if let Some(later) = packets.get(row + AHEAD) {
            later.prefetch();
        }
        let sight = interface.map_or(Sight::Nothing, |number| look(packet, number, &mut d));
        view.filter_family[row] = match sight {
            Sight::Nothing => 0,
            Sight::Never(reason) => {
                view.verdict[row] = Verdict::drop(reason).0;
                0
            }
            Sight::V4(header) => {
                view.filter_head0[row] = column(header);
                4
            }
            Sight::V6([a, b, c, d, e, f, g, h, ports, what]) => {
                view.filter_head0[row] = column([a, b, c, d]);
                view.filter_head1[row] = column([e, f, g, h]);
                view.filter_head2[row] = column([ports, what, 0, 0]);
                6
            }
        };
    }
}

impl<T: AsRef<FirewallTables> + Send + Sync + 'static> Stage<T> for Firewall {
    fn name(&self) -> &'static str {
        super::STAGE
    }

    fn columns(&self) -> &'static [Declaration] {
        match self.form {
            Form::Cpu(..) => self.place.columns(),
            Form::Device(..) => self.place.columns_for_device(),
        }
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn reads(&self) -> ColumnSet {
        match self.form {
            Form::Cpu(..) => ColumnSet::EMPTY,
            Form::Device(..) => ColumnSet::of(&[
                FilterColumns::FILTER_FAMILY,
                FilterColumns::FILTER_HEAD0,
                FilterColumns::FILTER_HEAD1,
                FilterColumns::FILTER_HEAD2,
            ]),
        }
    }

    fn writes(&self) -> ColumnSet {
        match self.form {
            Form::Cpu(..) => ColumnSet::EMPTY,
            Form::Device(..) => ColumnSet::of(&[FilterColumns::FILTER_RULE]),
        }
    }

    fn ends_segment(&self) -> bool {
        true
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        let Form::Device(_, interfaces) = &mut self.form else { return };
        match cx.tables.as_ref().rules() {
            Some(_) => fill(self.place, chunk, interfaces),
            None => FilterColumns::view(&mut chunk.rows).filter_family.fill(0),
        }
    }

    fn shader(&self) -> Option<Arc<dyn Shade<T>>> {
        match &self.form {
            Form::Cpu(..) => None,
            Form::Device(search, _) => Some(search.clone()),
        }
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        let tables: &FirewallTables = cx.tables.as_ref();
        let Some(rules) = tables.rules() else { return };
        self.find(chunk, rules);
        for row in 0..chunk.packets.len() {
            let Some(id) = self.found[row] else { continue };
            let packet = &chunk.packets[row];
            tables.hits().count(cx.worker, id, packet.frame_len(), cx.arrival_ns(packet));
            let Some(record) = tables.record(id) else { continue };
            if record.action != Action::of(Ending::Accept) {
                self.act(chunk, row, record.action, tables, cx);
            }
        }
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, tables: &T) -> String {
        let packet = &chunk.packets[row];
        let interface = match self.place {
            Place::Router => RouterColumns::view(&mut chunk.rows).interface[row],
            Place::Switch => packet.port,
        };
        match one(packet, interface, tables.as_ref()) {
            Found::Nothing => "not judged".to_owned(),
            Found::Never(reason) => reason.text().to_owned(),
            Found::Rule(record, true) => format!("no rule: {}", text(&record.action)),
            Found::Rule(record, false) => {
                format!("rule {}: {}", record.name, text(&record.action))
            }
        }
    }
}

/// What a firewall says of one packet.
enum Found<'a> {
    Nothing,
    Never(DropReason),
    /// The record, and whether it is the default's.
    Rule(&'a Record, bool),
}

/// Judges one packet, for traces and for those who must know before its turn.
fn one<'a>(packet: &Packet, interface: u16, tables: &'a FirewallTables) -> Found<'a> {
    let Some((v4, v6)) = tables.rules() else { return Found::Nothing };
    let mut best = [Match::NONE];
    let classify = |rules: &classify::Tables, header: &[u32], best: &mut [Match]| {
        if rules.words() == header.len() {
            rules.classify(header, best);
        }
    };
    match look(packet, interface, &mut Decoded::default()) {
        Sight::Nothing => return Found::Nothing,
        Sight::Never(reason) => return Found::Never(reason),
        Sight::V4(header) => classify(v4, &header, &mut best),
        Sight::V6(header) => classify(v6, &header, &mut best),
    }
    let id = best[0].id().unwrap_or(0);
    tables.record(id).map_or(Found::Nothing, |record| Found::Rule(record, id == 0))
}

/// Whether a frame that a switch receives goes on behind its firewall.
pub fn passes(packet: &Packet, tables: &FirewallTables) -> bool {
    match one(packet, packet.port, tables) {
        Found::Nothing => true,
        Found::Never(_) => false,
        Found::Rule(record, _) => record.action.ending == Ending::Accept,
    }
}

/// An action in words, for traces.
fn text(action: &Action) -> String {
    let mut text = match action.ending {
        Ending::Accept => "accept".to_owned(),
        Ending::Drop => "drop".to_owned(),
        Ending::Reject => "reject".to_owned(),
        Ending::Send(port) => format!("send port {port}"),
    };
    if let Some(dscp) = action.dscp {
        text = format!("mark {dscp}, {text}");
    }
    if let Some(port) = action.mirror {
        text = format!("mirror port {port}, {text}");
    }
    text
}

/// The columns that the stage looks at.
struct Rows<'a> {
    verdict: &'a mut [u32],
    /// In a router: flags and interface.
    router: Option<(&'a [u16], &'a [u16])>,
}

impl<'a> Rows<'a> {
    fn of(place: Place, rows: &'a mut chunk::Rows) -> Self {
        match place {
            Place::Router => {
                let view = RouterColumns::view(rows);
                Self { verdict: view.verdict, router: Some((view.flags, view.interface)) }
            }
            Place::Switch => Self { verdict: SwitchColumns::view(rows).verdict, router: None },
        }
    }

    /// The interface of a packet that is to be judged.
    #[inline]
    fn judged(&self, row: usize, packet: &Packet) -> Option<u16> {
        if !Verdict(self.verdict[row]).is_next() {
            return None;
        }
        match self.router {
            Some((flags, interface)) => {
                let is_ip = flags[row] & (router::flags::IPV4 | router::flags::IPV6) != 0;
                is_ip.then_some(interface[row])
            }
            None => Some(packet.port),
        }
    }
}

/// Gives a row its verdict.
fn set(place: Place, chunk: &mut Chunk, row: usize, verdict: Verdict) {
    Rows::of(place, &mut chunk.rows).verdict[row] = verdict.0;
}

/// Sets the code point of a packet.
fn mark(packet: &mut Packet, dscp: u8) {
    let d = packet::decode(packet.data(), packet.frame_len());
    let Some(ip) = packet.data_mut().get_mut(usize::from(d.l3_offset)..) else { return };
    match d.kind {
        Kind::Ipv4 => set_dscp_v4(ip, dscp),
        Kind::Ipv6 => set_dscp_v6(ip, dscp),
        Kind::Arp | Kind::Other => {}
    }
}
