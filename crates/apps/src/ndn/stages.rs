//! The stages `ndn_decode`, `name_lookup` and `pit`.
//!
//! ```text
//!            ┌────────────┐     ┌─────────────┐     ┌─────┐
//!  chunk ───▶│ ndn_decode │────▶│ name_lookup │────▶│ pit │───▶ ports
//!            └─────┬──────┘     └─────────────┘     └──┬──┘
//!                  │drop, host                         │drop, copies of Data
//! ```
//!
//! | stage | reads | writes | drop |
//! | --- | --- | --- | --- |
//! | `ndn_decode` | the packets | `kind`, `face`, `at`, `name_at`, `name_len` | `ndn_malformed`, `ndn_fragment`, `ndn_no_face`, `ndn_faces_full`, `ndn_hop_limit`, `ndn_no_nonce`, `ndn_nack`, `ndn_idle`, and what is wrong with frames |
//! | `name_lookup` | `name_at`, `name_len`, the packets | `next_hop` | |
//! | `pit` | all columns, the packets | the packets | `no_route`, `ndn_loop`, `ndn_aggregated`, `ndn_suppressed`, `ndn_pit_full`, `ndn_pit_share`, `ndn_unsolicited`, `ndn_satisfied`, `ndn_scope`, `ndn_hop_limit`, `ndn_control_busy`, and what faces refuse |
//!
//! `name_lookup` is a pure function of its columns, the packets and the tables, so that a device can take it: it reads
//! the names where the packets lie. On the CPU names of a whole chunk are looked up in one call, so that their cache
//! misses overlap. An Interest that waits with another one is dropped as `ndn_aggregated`: its fate is the other's.
//!
//! Written over any tables that hold [`NdnTables`], so that they can be beside a router's.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use chunk::{
    Chunk, ColumnSet, Columns, Declaration, DropReason, Emitted, Packet, ReasonBlock, Rows,
    Verdict, VerdictKind,
};
use device::accelerator::PayloadUse;
use engine::{Context, KernelForm, Phases, Shade, SpreadHash, Stage, Step};
use lookup::names::{DEPTH_MAX, NameFib, NameHasher, NameKey, NamePrefixes};
use lookup::{NO_ROUTE, NextHopId};
use packet::ndn::management::{Scope, is_command, scope};
use packet::ndn::{self, Body, LinkHeader, Malformed, Nack, Name, PIT_TOKEN_MAX};

use super::counters::NdnCounters;
use super::frames::{Sender, find, fits, strip, wrap};
use super::kernels::NAME_LOOKUP;
use super::pit::{Arrival, InRecord, Pit, PitKey, PitLimits, Seen};
use super::questions::{Ask, Question, Questions};
use super::reasons;
use super::store::{ContentStore, StoreLimits};
use super::tables::NdnTables;

chunk::columns! {
    /// Columns of the named-data forwarder.
    pub struct NdnColumns / NdnView {
        /// [`INTEREST`] or [`DATA`].
        pub kind: u8,
            /// The face that it came by, or [`STRANGER`].
        pub face: u16,
        /// Where the NDN packet, with its link fields, begins; bytes from the frame's start.
        pub at: u16,
        /// Where the components of an Interest's name begin, bytes from the frame's start.
        pub name_at: u16,
        /// Bytes of them; 0 for Data, whose name is not looked up.
        pub name_len: u16,
        /// Next hop of an Interest's name.
        pub next_hop: u32,
        /// Where the frame lies in a job's payload, bytes. Written where a device takes the job.
        pub payload_at: u32,
        /// Its length, bytes. Likewise.
        pub payload_len: u32,
    }
}

/// An Interest, in the column `kind`.
pub const INTEREST: u8 = 0;
/// Data.
pub const DATA: u8 = 1;

/// In the column `face`: a sender without a face, who is to have one.
pub const STRANGER: u16 = u16::MAX;

/// A worker asks control for a face's new MAC this often at most.
const MAC_ASKED_NS: u64 = 100_000_000;

/// What the stages of one worker are given.
#[derive(Debug, Clone)]
pub struct NdnOptions {
    /// The hash of the worker's own table.
    pub hasher: NameHasher,
    /// Room of the table of pending Interests.
    pub pit: PitLimits,
    /// Room for Data that has passed.
    pub store: StoreLimits,
    /// Whether an Interest without a route goes back as a Nack.
    pub nack: bool,
    /// Over captures: time is that of each packet, and passes with packets alone, so that nothing depends on how they
    /// fall into chunks.
    pub packet_time: bool,
    /// The first region of the forwarder's part of the tables in a device's image.
    pub first_region: usize,
    /// Control, which makes faces and takes commands; `None` where it has looked at the packets before.
    pub control: Option<SyncSender<Question>>,
    /// Counters of this worker's stages.
    pub counters: Arc<NdnCounters>,
}

/// How the names of a chunk are looked up: the table's own choice, or one of its forms, to measure them.
pub type NameForm = for<'k> fn(&NameFib<'_>, &'k [NameKey<'k>], &mut [NextHopId]);

/// The stages of a forwarder for one worker.
pub fn pipeline<T: AsRef<NdnTables> + 'static>(options: &NdnOptions) -> Vec<Box<dyn Stage<T>>> {
    pipeline_with(options, |fib, keys, out| fib.lookup(keys, out))
}

/// As [`pipeline`], with a form of lookup of one's own choice.
pub fn pipeline_with<T: AsRef<NdnTables> + 'static>(
    options: &NdnOptions,
    form: NameForm,
) -> Vec<Box<dyn Stage<T>>> {
    let lookup = Box::new(NameLookup::new(form, options));
    let own = |name| stage(name, options);
    [own("ndn_decode"), Some(lookup), own("pit")].into_iter().flatten().collect()
}

/// A stage for one worker; `None` for a name that is none of [`super::STAGES`].
pub fn stage<T: AsRef<NdnTables> + 'static>(
    name: &str,
    options: &NdnOptions,
) -> Option<Box<dyn Stage<T>>> {
    Some(match name {
        "ndn_decode" => Box::new(NdnDecode { counters: options.counters.clone() }),
        "name_lookup" => Box::new(NameLookup::new(|fib, keys, out| fib.lookup(keys, out), options)),
        "pit" => Box::new(PitStage {
            pit: Pit::new(options.hasher, options.pit),
            store: ContentStore::new(options.hasher, options.store),
            nack: options.nack,
            packet_time: options.packet_time,
            counters: options.counters.clone(),
            waiting: Vec::with_capacity(256),
            answer: Vec::with_capacity(ndn::PACKET_MAX),
            questions: Questions::new(options.control.clone()),
            mac_asked_ns: 0,
        }),
        _ => return None,
    })
}

#[inline(always)]
fn is_live(verdict: u32) -> bool {
    Verdict(verdict).is_next()
}

/// The drop reason of a packet that is none.
fn reason(malformed: Malformed) -> DropReason {
    match malformed {
        Malformed::Fragment => reasons::NDN_FRAGMENT,
        _ => reasons::NDN_MALFORMED,
    }
}

/// The stage `ndn_decode`.
struct NdnDecode {
    counters: Arc<NdnCounters>,
}

impl<T: AsRef<NdnTables>> Stage<T> for NdnDecode {
    fn name(&self) -> &'static str {
        "ndn_decode"
    }

    fn columns(&self) -> &'static [Declaration] {
        &[NdnColumns::COLUMNS]
    }

    fn phases(&self) -> Phases {
        Phases::PRE
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn spread_hash(&self) -> Option<SpreadHash> {
        Some(super::spread_hash.into()) // Interests and Data meet by their names
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        let view = NdnColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter().enumerate() {
            if !is_live(view.verdict[row]) {
                continue;
            }
            match look(packet, cx.tables.as_ref()) {
                Ok(Looked { kind, face, at, name_at, name_len }) => {
                    if let Some(face) = self.counters.face(face) {
                        let is_interest = kind == INTEREST;
                        if is_interest { &face.in_interests } else { &face.in_data }.add(1);
                    }
                    (view.kind[row], view.face[row], view.at[row]) = (kind, face, at);
                    (view.name_at[row], view.name_len[row]) = (name_at, name_len);
                }
                Err(verdict) => view.verdict[row] = verdict.0,
            }
        }
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, tables: &T) -> String {
        let (tables, packet) = (tables.as_ref(), &chunk.packets[row]);
        let Ok((at, sender)) = find(packet, tables) else { return "no NDN packet".to_owned() };
        let name = match sender {
            Sender::Face(face) => tables.face(face).map_or("-", |face| face.name.as_str()),
            Sender::Stranger(_) => "a new face",
        };
        match ndn::Packet::new_checked(packet.data().get(at..).unwrap_or_default()) {
            Ok(ndn::Packet { body: Body::Interest(i), .. }) => {
                format!("Interest {} in by {name}", i.name())
            }
            Ok(ndn::Packet { body: Body::Data(data), .. }) => {
                format!("Data {} in by {name}", data.name())
            }
            Ok(_) => format!("a link packet in by {name}"),
            Err(error) => format!("in by {name}: {error}"),
        }
    }
}

/// What the columns say of a packet that goes on.
struct Looked {
    kind: u8,
    face: u16,
    at: u16,
    name_at: u16,
    name_len: u16,
}

/// A packet that goes on; else its fate.
fn look(packet: &Packet, tables: &NdnTables) -> Result<Looked, Verdict> {
    let (at, sender) = find(packet, tables)?;
    let is_up = |face| tables.face(face).is_some_and(|face| face.up);
    if matches!(sender, Sender::Face(face) if !is_up(face)) {
        return Err(Verdict::drop(packet::reasons::INTERFACE_DOWN));
    }
    let bytes = packet.data().get(at..).unwrap_or_default();
    let (kind, name) = kind_of(bytes).map_err(Verdict::drop)?;
    let face = match sender {
        Sender::Face(face) => face,
        Sender::Stranger(_) if kind != INTEREST => {
            return Err(Verdict::drop(reasons::NDN_NO_FACE));
        }
        Sender::Stranger(_) if tables.is_full(packet.port) => {
            return Err(Verdict::drop(reasons::NDN_FACES_FULL));
        }
        Sender::Stranger(_) => STRANGER,
    };
    // A cell has 2,048 bytes.
    let name_at = name.as_ptr().addr() - packet.data().as_ptr().addr();
    let (at, name_at, name_len) = (at as u16, name_at as u16, name.len() as u16);
    Ok(Looked { kind, face, at, name_at, name_len })
}

/// What an NDN packet is, if it goes on, and the components that are to be looked up.
pub(super) fn kind_of(bytes: &[u8]) -> Result<(u8, &[u8]), DropReason> {
    let read = ndn::Packet::new_checked(bytes).map_err(reason)?;
    if read.link.nack.is_some() {
        return Err(reasons::NDN_NACK);
    }
    match &read.body {
        Body::Idle => Err(reasons::NDN_IDLE),
        Body::Data(_) => Ok((DATA, &bytes[..0])),
        Body::Interest(interest) => {
            let fields = interest.fields();
            // One hop is left for an Interest that is answered here.
            if fields.hop_limit == Some(0) {
                return Err(reasons::NDN_HOP_LIMIT);
            }
            if fields.nonce.is_none() {
                return Err(reasons::NDN_NO_NONCE);
            }
            Ok((INTEREST, interest.name().value()))
        }
    }
}

/// The stage `name_lookup`.
struct NameLookup {
    shade: Arc<Lookup>,
}

/// What it does, without state: any thread may.
struct Lookup {
    form: NameForm,
    /// Of the forwarder's part of the tables.
    first_region: usize,
}

impl NameLookup {
    fn new(form: NameForm, options: &NdnOptions) -> Self {
        Self { shade: Arc::new(Lookup { form, first_region: options.first_region }) }
    }
}

thread_local! {
    /// The hashed prefixes of a chunk, whose memory each thread that shades keeps.
    static PREFIXES: RefCell<NamePrefixes> = RefCell::new(NamePrefixes::new());
}

impl<T: AsRef<NdnTables> + 'static> Stage<T> for NameLookup {
    fn name(&self) -> &'static str {
        "name_lookup"
    }

    fn columns(&self) -> &'static [Declaration] {
        &[NdnColumns::COLUMNS]
    }

    fn phases(&self) -> Phases {
        Phases::NONE
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn reads(&self) -> ColumnSet {
        ColumnSet::of(&[NdnColumns::NAME_AT, NdnColumns::NAME_LEN])
    }

    fn writes(&self) -> ColumnSet {
        ColumnSet::of(&[NdnColumns::NEXT_HOP])
    }

    fn shader(&self) -> Option<Arc<dyn Shade<T>>> {
        Some(self.shade.clone())
    }
}

impl<T: AsRef<NdnTables>> Shade<T> for Lookup {
    /// Names are in the packets alone.
    fn shade(&self, _: &mut Rows, _: &T) {}

    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], tables: &T) {
        let view = NdnColumns::view(rows);
        let fib = tables.as_ref().fib();
        PREFIXES.with_borrow_mut(|prefixes| {
            prefixes.clear();
            let mut rows = [0_u16; chunk::CHUNK_PACKETS_MAX];
            let mut names = [&[][..]; chunk::CHUNK_PACKETS_MAX];
            let mut count = 0;
            for (row, packet) in packets.iter().enumerate() {
                if !is_live(view.verdict[row]) || view.name_len[row] == 0 {
                    continue;
                }
                // What cannot be looked up has no route, here as on a device.
                view.next_hop[row] = NO_ROUTE;
                let name = name_of(packet, view.name_at[row], view.name_len[row]);
                let (Some(name), Some(fib)) = (name, &fib) else { continue };
                prefixes.push_components(fib.hasher(), name.encodings(), DEPTH_MAX);
                (rows[count], names[count]) = (row as u16, name.value());
                count += 1;
            }
            let Some(fib) = fib else { return };
            let mut keys = [NameKey::default(); chunk::CHUNK_PACKETS_MAX];
            for (index, key) in keys[..count].iter_mut().enumerate() {
                *key = prefixes.key_of_bytes(index, names[index]);
            }
            let mut found = [NO_ROUTE; chunk::CHUNK_PACKETS_MAX];
            (self.form)(&fib, &keys[..count], &mut found[..count]);
            for (row, next_hop) in rows[..count].iter().zip(found) {
                view.next_hop[usize::from(*row)] = next_hop;
            }
        });
    }

    fn kernels(&self) -> Option<KernelForm> {
        Some(KernelForm {
            files: &[&NAME_LOOKUP],
            steps: vec![Step::rows("name_lookup", 256).with_job(self.first_region as u32).into()],
            payload: Some(PayloadUse {
                at: NdnColumns::PAYLOAD_AT,
                len: NdnColumns::PAYLOAD_LEN,
                writes: false,
            }),
            ..KernelForm::default()
        })
    }
}

/// The name whose components begin at `at`.
fn name_of(packet: &Packet, at: u16, len: u16) -> Option<Name<'_>> {
    let bytes = packet.data().get(usize::from(at)..)?.get(..usize::from(len))?;
    Name::new_checked(bytes).ok()
}

/// The stage `pit`.
struct PitStage {
    pit: Pit,
    store: ContentStore,
    nack: bool,
    packet_time: bool,
    counters: Arc<NdnCounters>,
    waiting: Vec<InRecord>,
    /// Data out of the store, or an answer to a command.
    answer: Vec<u8>,
    questions: Questions,
    mac_asked_ns: u64,
}

/// What the columns say of one Interest.
#[derive(Clone, Copy)]
struct Row {
    face: u16,
    at: u16,
    next_hop: NextHopId,
    cause: u16,
    /// Control has been asked what the answer is.
    was_asked: bool,
}

/// What was made of a packet, beside what became of it.
type Made = Vec<Emitted>;

impl<T: AsRef<NdnTables>> Stage<T> for PitStage {
    fn name(&self) -> &'static str {
        "pit"
    }

    fn columns(&self) -> &'static [Declaration] {
        &[NdnColumns::COLUMNS]
    }

    fn phases(&self) -> Phases {
        Phases::POST
    }

    fn needs_one_worker(&self, _: &T) -> Option<&'static str> {
        Some("each worker has its own limits of pending Interests and of stored Data")
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, T>) {
        let view = NdnColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter_mut().enumerate() {
            if !is_live(view.verdict[row]) {
                continue;
            }
            let (face, at, cause) = (view.face[row], view.at[row], row as u16);
            self.follow(packet, face, cx);
            let verdict = match view.kind[row] {
                INTEREST if face == STRANGER => self.ask_for_face(packet, cx),
                INTEREST => {
                    let next_hop = view.next_hop[row];
                    let row = Row { face, at, next_hop, cause, was_asked: false };
                    self.interest(packet, row, &mut chunk.emitted, cx)
                }
                _ => self.data(packet, face, at, cause, &mut chunk.emitted, cx),
            };
            view.verdict[row] = verdict.unwrap_or_else(Verdict::drop).0;
        }
        self.count();
    }

    fn tick(&mut self, cx: &mut Context<'_, T>) {
        if !self.packet_time {
            self.pit.expire(cx.now_ns);
        }
        if self.questions.len() > 0 {
            self.resume(cx);
        }
        self.count();
    }

    fn next_tick_ns(&self) -> Option<u64> {
        self.questions.deadline_ns()
    }

    fn held(&self) -> usize {
        self.questions.len()
    }

    fn drain(&mut self, cx: &mut Context<'_, T>) {
        while let Some(held) = self.questions.pop() {
            cx.drop_packet(held.packet, reasons::NDN_CONTROL_BUSY);
        }
    }

    /// Interests stay pending, Data stays stored, and packets go on waiting for control.
    fn inherit(&mut self, before: &mut dyn Stage<T>) {
        let before = before.as_any().and_then(|before| before.downcast_mut::<Self>());
        if let Some(before) = before {
            std::mem::swap(&mut self.pit, &mut before.pit);
            std::mem::swap(&mut self.store, &mut before.store);
            std::mem::swap(&mut self.questions, &mut before.questions);
        }
    }

    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        Some(self)
    }

    fn describe(&self, _: &mut Chunk, _: usize, _: &T) -> String {
        format!("{} Interests are pending, {} Data are stored", self.pit.len(), self.store.len())
    }
}

impl PitStage {
    fn now_ns<T>(&self, packet: &Packet, cx: &Context<'_, T>) -> u64 {
        if self.packet_time { packet.time_ns } else { cx.now_ns }
    }

    fn count(&self) {
        self.counters.pending.set(self.pit.len() as u64);
        self.counters.expired.set(self.pit.expired());
        let stats = self.store.stats();
        self.counters.stored.set(self.store.len() as u64);
        self.counters.stored_bytes.set(self.store.len_bytes());
        self.counters.store_hits.set(stats.hits);
        self.counters.store_misses.set(stats.misses);
        self.counters.store_evicted.set(stats.evicted);
    }

    /// A face on demand goes where its neighbour sends from.
    fn follow<T: AsRef<NdnTables>>(&mut self, packet: &Packet, face: u16, cx: &Context<'_, T>) {
        let Some(known) = cx.tables.as_ref().face(face).filter(|face| face.on_demand) else {
            return;
        };
        let Some(from) = packet.data().get(6..12).and_then(|mac| <[u8; 6]>::try_from(mac).ok())
        else {
            return;
        };
        let is_due = cx.now_ns.saturating_sub(self.mac_asked_ns) >= MAC_ASKED_NS;
        if known.neighbour_mac != Some(from) && is_due && self.questions.can_ask() {
            self.mac_asked_ns = cx.now_ns;
            self.questions.ask(cx.worker, Ask::Mac(face, from)); // or by a later packet
        }
    }

    /// The first Interest of a stranger waits for its face.
    fn ask_for_face<T: AsRef<NdnTables>>(
        &mut self,
        packet: &mut Packet,
        cx: &mut Context<'_, T>,
    ) -> Result<Verdict, DropReason> {
        let found = find(packet, cx.tables.as_ref());
        let mac = packet.data().get(6..12).and_then(|mac| <[u8; 6]>::try_from(mac).ok());
        let (Ok((_, Sender::Stranger(ends))), Some(mac)) = (found, mac) else {
            return Err(reasons::NDN_NO_FACE);
        };
        self.ask(packet, Ask::Face(packet.port, ends, mac), cx)
    }

    /// Asks control, and keeps the packet until the question is settled.
    fn ask<T>(
        &mut self,
        packet: &mut Packet,
        ask: Ask,
        cx: &mut Context<'_, T>,
    ) -> Result<Verdict, DropReason> {
        let is_command = matches!(ask, Ask::Command(..));
        if !self.questions.has_room() || !self.questions.ask(cx.worker, ask) {
            return Err(reasons::NDN_CONTROL_BUSY);
        }
        self.questions.hold(packet, is_command, cx.now_ns);
        Ok(Verdict::TAKEN)
    }

    /// Packets whose questions are settled go on.
    fn resume<T: AsRef<NdnTables>>(&mut self, cx: &mut Context<'_, T>) {
        let settled = cx.tables.as_ref().settled(cx.worker);
        let mut made = Made::new();
        while let Some(mut held) = self.questions.next(settled, cx.now_ns) {
            let verdict = self.again(&mut held.packet, held.is_command, &mut made, cx);
            part_with(held.packet, verdict.unwrap_or_else(Verdict::drop), cx);
            for emitted in made.drain(..) {
                part_with(emitted.packet, emitted.verdict, cx);
            }
        }
    }

    /// A packet that was held, with the tables as they are now.
    fn again<T: AsRef<NdnTables>>(
        &mut self,
        packet: &mut Packet,
        was_asked: bool,
        made: &mut Made,
        cx: &mut Context<'_, T>,
    ) -> Result<Verdict, DropReason> {
        let tables = cx.tables.as_ref();
        let looked = match look(packet, tables) {
            Ok(looked) => looked,
            Err(verdict) => return Ok(verdict),
        };
        if looked.face == STRANGER {
            return Err(reasons::NDN_CONTROL_BUSY);
        }
        if let Some(face) = self.counters.face(looked.face).filter(|_| !was_asked) {
            face.in_interests.add(1);
        }
        let name = name_of(packet, looked.name_at, looked.name_len);
        let next_hop = name.zip(tables.fib()).map_or(NO_ROUTE, |(name, fib)| next_hop(&fib, &name));
        let Looked { face, at, .. } = looked;
        self.interest(packet, Row { face, at, next_hop, cause: 0, was_asked }, made, cx)
    }

    /// An Interest for a name that goes no further than this hop.
    fn command<T: AsRef<NdnTables>>(
        &mut self,
        packet: &mut Packet,
        row: Row,
        cx: &mut Context<'_, T>,
    ) -> Result<Verdict, DropReason> {
        let bytes = packet.data().get(usize::from(row.at)..).unwrap_or_default();
        let read = ndn::Packet::new_checked(bytes).map_err(reason)?;
        let Body::Interest(interest) = &read.body else { return Err(reasons::NDN_MALFORMED) };
        if !is_command(&interest.name()) {
            return Err(reasons::NDN_SCOPE);
        }
        if let Some(answer) = cx.tables.as_ref().answer(interest.name().value()) {
            self.answer.clear();
            self.answer.extend_from_slice(answer);
            let mut token = [0; PIT_TOKEN_MAX];
            let token = copied(read.link.pit_token, &mut token);
            return self.answer(packet, row.face, token, cx);
        }
        if row.was_asked || !self.questions.can_ask() {
            return Err(reasons::NDN_CONTROL_BUSY);
        }
        let ask = Ask::Command(row.face, interest.bytes().into());
        self.ask(packet, ask, cx)
    }

    fn interest<T: AsRef<NdnTables>>(
        &mut self,
        packet: &mut Packet,
        row: Row,
        made: &mut Made,
        cx: &mut Context<'_, T>,
    ) -> Result<Verdict, DropReason> {
        let Row { face: from, at, next_hop, cause, .. } = row;
        let (tables, now_ns) = (cx.tables.as_ref(), self.now_ns(packet, cx));
        let bytes = packet.data().get(usize::from(at)..).unwrap_or_default();
        let read = ndn::Packet::new_checked(bytes).map_err(reason)?;
        let Body::Interest(interest) = &read.body else { return Err(reasons::NDN_MALFORMED) };
        let fields = *interest.fields();
        let key = PitKey {
            name: interest.name(),
            can_be_prefix: fields.can_be_prefix,
            must_be_fresh: fields.must_be_fresh,
        };
        if scope(&key.name) != Scope::Global {
            return self.command(packet, row, cx);
        }
        let start = interest.bytes().as_ptr() as usize - packet.data().as_ptr() as usize;
        let (len, hops_at) = (interest.bytes().len(), interest.hop_limit_at());
        let nonce = fields.nonce.unwrap_or_default();
        // Whoever asks for what others wait for waits with them, and a loop ends as it would without a store.
        let is_stored = self.store.is_on()
            && self.pit.seen(&key, from, nonce, now_ns) == Seen::New
            && self.store.lookup(&key, now_ns, &mut self.answer);
        if is_stored {
            let mut token = [0; PIT_TOKEN_MAX];
            let token = copied(read.link.pit_token, &mut token);
            return self.answer(packet, from, token, cx);
        }
        if fields.hop_limit.is_some_and(|hops| hops <= 1) {
            return Err(reasons::NDN_HOP_LIMIT);
        }
        let Some(way) = tables.way(next_hop, from) else {
            let link = nack_of(Nack::NoRoute, read.link.pit_token);
            if self.nack {
                send_back(packet, start, len, from, &link, cause, made, &self.counters, cx);
            }
            return Err(kernels::reasons::NO_ROUTE);
        };
        let face = tables.face(way).ok_or(kernels::reasons::BAD_LOOKUP)?;
        // Before anybody waits for what cannot be sent.
        fits(face, len)?;
        let record = InRecord::new(from, nonce, now_ns, fields.lifetime_ms, read.link.pit_token);
        let record = record.on_port(tables.face(from).map_or(chunk::PORT_NONE, |face| face.port));
        let refused = match self.pit.interest(&key, record, now_ns) {
            Arrival::Loop => return Err(reasons::NDN_LOOP),
            Arrival::Aggregated => return Err(reasons::NDN_AGGREGATED),
            Arrival::Suppressed => return Err(reasons::NDN_SUPPRESSED),
            Arrival::Full => Some(reasons::NDN_PIT_FULL),
            Arrival::Share => Some(reasons::NDN_PIT_SHARE),
            Arrival::Forward(id) => {
                self.pit.sent(id, way);
                None
            }
        };
        if let Some(reason) = refused {
            let link = nack_of(Nack::Congestion, read.link.pit_token);
            if self.nack {
                send_back(packet, start, len, from, &link, cause, made, &self.counters, cx);
            }
            return Err(reason);
        }
        if let (Some(hops_at), Some(hops)) = (hops_at, fields.hop_limit) {
            packet.data_mut()[start + hops_at] = hops - 1;
        }
        if !strip(packet, cx.pool, start, len) {
            return Err(reasons::NDN_MALFORMED);
        }
        let verdict = wrap(packet, face, &LinkHeader::default());
        if let (VerdictKind::Forward, Some(face)) = (verdict.kind(), self.counters.face(way)) {
            face.out_interests.add(1);
        }
        Ok(verdict)
    }

    /// Turns an Interest into the Data that `self.answer` holds, for the face that it came by.
    fn answer<T: AsRef<NdnTables>>(
        &self,
        packet: &mut Packet,
        from: u16,
        token: &[u8],
        cx: &mut Context<'_, T>,
    ) -> Result<Verdict, DropReason> {
        let face = cx.tables.as_ref().face(from).ok_or(chunk::reasons::TX_NO_PORT)?;
        let copy = Packet::copy_from(cx.pool, &self.answer).ok_or(chunk::reasons::NO_CELLS)?;
        let interest = std::mem::replace(packet, copy);
        (packet.time_ns, packet.mark) = (interest.time_ns, interest.mark);
        packet.port = interest.port;
        interest.free(cx.pool);
        let verdict = wrap(packet, face, &LinkHeader { pit_token: token, ..LinkHeader::default() });
        if let (VerdictKind::Forward, Some(face)) = (verdict.kind(), self.counters.face(from)) {
            face.out_data.add(1);
        }
        Ok(verdict)
    }

    fn data<T: AsRef<NdnTables>>(
        &mut self,
        packet: &mut Packet,
        from: u16,
        at: u16,
        cause: u16,
        made: &mut Made,
        cx: &mut Context<'_, T>,
    ) -> Result<Verdict, DropReason> {
        let bytes = packet.data().get(usize::from(at)..).unwrap_or_default();
        let read = ndn::Packet::new_checked(bytes).map_err(reason)?;
        let Body::Data(data) = &read.body else { return Err(reasons::NDN_MALFORMED) };
        let now_ns = self.now_ns(packet, cx);
        let waiting = &mut self.waiting;
        waiting.clear();
        let digest = || ndn::digest(data.bytes());
        if !self.pit.data(&data.name(), digest, from, now_ns, |record| waiting.push(*record)) {
            return Err(reasons::NDN_UNSOLICITED);
        }
        if !read.link.no_cache {
            self.store.insert(data, now_ns);
        }
        let start = data.bytes().as_ptr() as usize - packet.data().as_ptr() as usize;
        let len = data.bytes().len();
        // A face that asked twice, for a name and for one that begins it, gets one answer each.
        let (last, others) = waiting.split_last().ok_or(reasons::NDN_SATISFIED)?;
        for record in others {
            let link = LinkHeader { pit_token: record.token(), ..LinkHeader::default() };
            send_back(packet, start, len, record.face, &link, cause, made, &self.counters, cx);
        }
        if !strip(packet, cx.pool, start, len) {
            return Err(reasons::NDN_MALFORMED);
        }
        let face = cx.tables.as_ref().face(last.face).ok_or(chunk::reasons::TX_NO_PORT)?;
        let link = LinkHeader { pit_token: last.token(), ..LinkHeader::default() };
        let verdict = wrap(packet, face, &link);
        if let (VerdictKind::Forward, Some(face)) = (verdict.kind(), self.counters.face(last.face))
        {
            face.out_data.add(1);
        }
        Ok(verdict)
    }
}

/// Hands a packet that was held, or made of one, back to the engine.
fn part_with<T>(packet: Packet, verdict: Verdict, cx: &mut Context<'_, T>) {
    match verdict.kind() {
        VerdictKind::Taken => packet.free(cx.pool), // it is held again
        VerdictKind::Drop => cx.drop_packet(packet, verdict.reason()),
        _ => cx.release(packet, verdict),
    }
}

/// The next hop of one name.
fn next_hop(fib: &NameFib<'_>, name: &Name<'_>) -> NextHopId {
    let (mut prefixes, mut found) = (NamePrefixes::new(), [NO_ROUTE]);
    prefixes.push_components(fib.hasher(), name.encodings(), DEPTH_MAX);
    let keys = [prefixes.key_of_bytes(0, name.value())];
    fib.lookup(&keys, &mut found);
    found[0]
}

/// The beginning of some bytes in memory of their own.
fn copied<'a>(bytes: &[u8], own: &'a mut [u8; PIT_TOKEN_MAX]) -> &'a [u8] {
    let len = bytes.len().min(own.len());
    own[..len].copy_from_slice(&bytes[..len]);
    &own[..len]
}

/// The link fields of an Interest that goes back (NDNLPv2).
fn nack_of(nack: Nack, pit_token: &[u8]) -> LinkHeader<'_> {
    LinkHeader { nack: Some(nack), pit_token, ..LinkHeader::default() }
}

/// Sends a copy of a part of a packet to a face; what cannot go is counted.
#[allow(clippy::too_many_arguments)] // the packet's part, the way, the cause
fn send_back<T: AsRef<NdnTables>>(
    packet: &Packet,
    start: usize,
    len: usize,
    face: u16,
    link: &LinkHeader<'_>,
    cause: u16,
    made: &mut Made,
    counters: &NdnCounters,
    cx: &mut Context<'_, T>,
) {
    let Some(to) = cx.tables.as_ref().face(face) else { return };
    let Some(mut copy) = packet.duplicate(cx.pool) else { return counters.copies_lost.add(1) };
    copy.port = chunk::PORT_NONE;
    if !strip(&mut copy, cx.pool, start, len) {
        return copy.free(cx.pool);
    }
    let verdict = wrap(&mut copy, to, link);
    // One that cannot go was made all the same, and its drop is counted like any other's.
    let goes = verdict.kind() == VerdictKind::Forward;
    if goes && link.nack.is_some() {
        counters.nacks.add(1);
    } else if goes && let Some(face) = counters.face(face) {
        face.out_data.add(1);
    }
    made.push(Emitted { cause, verdict, packet: copy });
}
