//! What an application is made of: stages (PacketShader calls the three steps pre-shading, shading
//! and post-shading, §5.1; GASPP calls a stage a module, §4).

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

use chunk::{Chunk, ColumnSet, Declaration, DropReason, Packet, Pool, ReasonBlock, Rows, Verdict};

use device::accelerator::Records;

use crate::balance::Side;
use crate::heirs::Heirs;
use crate::segment::KernelForm;
use crate::worker::SpreadHash;

/// Where the versions of all tables come from. One per worker. The engine knows nothing of what is
/// in the tables.
pub trait Versions: Send + 'static {
    /// All tables of an application, seen as one.
    type Tables: Sync + 'static;
    /// Keeps one version as it is for as long as it lives; it travels with its chunk.
    type Pin: Deref<Target = Self::Tables> + Send + 'static;
    /// Pins the newest version. Never blocks.
    fn pin(&mut self) -> Self::Pin;
    /// The number of a pinned version; it grows with each change.
    fn number(pin: &Self::Pin) -> u64;
}

/// The step that a device can take: a pure function of the columns that it reads and one version of
/// the tables, over a whole batch.
///
/// It looks at the rows whose verdict is [`Verdict::NEXT`] and no others, may change their verdict,
/// and writes only columns that it does not read, but for the context. So it can be done again.
pub trait Shade<T>: Send + Sync {
    /// Shades `rows`.
    fn shade(&self, rows: &mut Rows, tables: &T);

    /// Shades `rows` and, for a shade that reads or changes payload, the packets' bytes.
    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], tables: &T) {
        let _ = packets;
        self.shade(rows, tables);
    }

    /// The kernels that do the same; `None` for a shade that only a CPU can do.
    fn kernels(&self) -> Option<KernelForm> {
        None
    }

    /// Whether it has no CPU form: its kernels alone do the work. Its chunks wait for the device instead of being shaded on
    /// the CPU, whatever that costs, and [`Shade::shade`] is called only for rows that the device has failed to shade. An
    /// engine without a device, or with a simulated one, does not start.
    fn needs_device(&self) -> bool {
        false
    }

    /// What a compiler says of its kernels, with the places and names of the files that people wrote.
    fn explained(&self, log: &str) -> String {
        log.to_owned()
    }

    /// For such a shade: what becomes of packets once the device is given up, or its use for the segment, as sentences for people.
    fn without_device(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether its kernels can work with this version of the tables. The chunks of a version with which they cannot are
    /// shaded on the CPU, with all shades of the segment.
    fn fits_device(&self, _tables: &T) -> bool {
        true
    }

    /// For a shade with state ([`KernelForm::state`]): how many slots the host's copy of its shard has now; never fewer
    /// than before.
    fn state_slots(&self) -> usize {
        0
    }

    /// For a shade with state: writes the records of step `step` of the host's copy to `bytes`, which are zero: those
    /// of slots `step * slots_per_step` and on. Steps are sent when the shard moves to a device, and when it has
    /// grown there. Called by a master, while nothing of the shard is away or nothing of that step is.
    fn state(&self, _step: usize, _bytes: &mut [u8]) {}

    /// For a shade with state: one that does the same on an empty state of its own, by which the simulated device
    /// shades in place of kernels. An engine with devices does not start where it is `None`.
    fn twin(&self) -> Option<Arc<dyn Shade<T>>> {
        None
    }

    /// For such a twin: takes over one step of records, as [`Shade::state`] wrote them.
    fn set_state(&self, _step: usize, _bytes: &[u8]) {}

    /// For a shade whose kernels write records ([`KernelForm::output`]): those of rows that a device has shaded. Row
    /// `row` of `rows` is row `first + row` of `records`. It comes before [`Shade::retired`], in the same order. What
    /// the shade does on the CPU ends in the same records.
    fn records(&self, _rows: &mut Rows, _records: Records<'_>, _first: usize) {}

    /// For a shade with state: a device has shaded these rows. The records that it touched came back in columns; they
    /// become the host's copy, row after row. `packets` are the rows' packets, with what the kernels changed; there
    /// are none of a sweep's rows ([`Stage::sweep`]). Verdicts are those behind the whole segment: a later stage may
    /// have settled rows that this one saw. Called by the shard's worker, chunk after chunk in order.
    fn retired(&self, _rows: &mut Rows, _packets: &mut [Packet]) {}
}

/// The twin of a shade with state; one without is its own.
pub(crate) fn twin_of<T>(shade: &Arc<dyn Shade<T>>) -> Arc<dyn Shade<T>> {
    shade.twin().unwrap_or_else(|| shade.clone())
}

/// Whether a shade's kernels keep state.
pub(crate) fn has_state<T>(shade: &dyn Shade<T>) -> bool {
    shade.kernels().is_some_and(|form| form.state.is_some())
}

/// Which packets must meet at one worker; each need includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spread {
    /// Packets of a flow stay in order, each direction by itself. Queues may keep the spread of
    /// their network card.
    #[default]
    Any,
    /// Both directions of a flow meet: a symmetric hash of addresses and ports. Fragments have no
    /// ports and go by their addresses, for a stage that puts datagrams together and hands them
    /// over to the worker of their flow.
    Flow,
    /// All packets between two hosts meet, whole ones and fragments: a symmetric hash of the two
    /// addresses.
    Hosts,
}

impl Spread {
    /// The need of a whole pipeline: the strongest of its stages.
    pub fn of<T>(stages: &[Box<dyn Stage<T>>]) -> Self {
        stages.iter().map(|stage| stage.spread()).max().unwrap_or_default()
    }
}

/// A stage of a pipeline, one instance per worker.
pub trait Stage<T>: Send {
    /// Its name, as in `[pipeline.NAME] stages = […]`.
    fn name(&self) -> &'static str;

    /// Names of the places to which it sends packets by [`Verdict::again`] or [`Context::hand_over`]. Its pipeline
    /// says which stage each of them is ([`PipelineSpec::places`](crate::PipelineSpec::places)), or it is the stage
    /// of that name; a segment begins there.
    fn sends_to(&self) -> &'static [&'static str] {
        &[]
    }

    /// The blocks of the reasons that it drops for, apart from [`chunk::reasons::BLOCK`]. The engine registers
    /// them when it starts; a reason of another block counts as unknown.
    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        &[]
    }

    /// The declarations of columns that it works with, beyond verdict and context. Those of all stages are joined at
    /// start: what two stages declare by one name is one column.
    fn columns(&self) -> &'static [Declaration] {
        &[]
    }

    /// Columns that start a chunk as zero, as `context` always does. All others hold what an earlier chunk left there
    /// until a stage writes them.
    fn zeroed(&self) -> ColumnSet {
        ColumnSet::EMPTY
    }

    /// Columns that its shade reads, `context` among them if it does. The verdict is always one of them.
    fn reads(&self) -> ColumnSet {
        ColumnSet::EMPTY
    }

    /// Columns that its shade writes; none of those that it reads, but for `context`, which the engine restores
    /// before a shade is done again, like the verdict. A shade that sets contexts has `context` here; it adds to what
    /// a row has.
    fn writes(&self) -> ColumnSet {
        ColumnSet::EMPTY
    }

    /// In which of its two steps on packets it sets contexts. Its shade says so in [`Stage::writes`].
    fn sets_context(&self) -> Phases {
        Phases::NONE
    }

    /// It sees only rows with one of these contexts, a bit each; 0: all rows. Only [`InContext`](crate::InContext) has
    /// another answer, which hides the other rows from the stage in it.
    fn contexts(&self) -> u32 {
        0
    }

    /// Whether its `post_shade` changes bytes of packets that go on: a later stage that [reads
    /// them](Stage::reads_packets) in its `pre_shade` begins a segment of its own, and so sees them as they are then.
    fn changes_packets(&self) -> bool {
        false
    }

    /// Whether it takes frames that their sender left unfinished for a network card (`Packet::offload`): longer than the
    /// MTU, with the sum of the pseudo-header in place of the checksum. A pipeline with a stage that does not gets
    /// packets as they are on a wire, finished on receipt.
    fn takes_offloads(&self) -> bool {
        false
    }

    /// Whether its `pre_shade` reads bytes of packets that an earlier stage may [change](Stage::changes_packets).
    fn reads_packets(&self) -> bool {
        false
    }

    /// Columns that are its own: one step fills them for another one. Of two stages that have one in common, the second
    /// begins a segment of its own.
    fn keeps(&self) -> ColumnSet {
        ColumnSet::EMPTY
    }

    /// Whether its `pre_shade` needs the verdicts that the shades before it leave, so that a segment begins with it: it makes
    /// room in packets that go on, for example.
    fn begins_segment(&self) -> bool {
        false
    }

    /// Whether stages after it must see the packets as its `post_shade` leaves them, so that a
    /// segment cannot go on behind it.
    fn ends_segment(&self) -> bool {
        false
    }

    /// Which of its two steps on packets it has; a step that it lacks is neither called nor timed. A stage that has
    /// nothing but a `pre_shade` joins the segment behind it.
    fn phases(&self) -> Phases {
        Phases::BOTH
    }

    /// Which packets must meet at one worker. A stage whose kernels keep state needs
    /// [`Spread::Hosts`] unless it says otherwise; any other needs nothing.
    fn spread(&self) -> Spread {
        let form = self.shader().and_then(|shader| shader.kernels());
        if form.is_some_and(|form| form.state.is_some()) { Spread::Hosts } else { Spread::Any }
    }

    /// The hash of a frame by which packets that must meet are spread, where addresses and ports do not say it: names,
    /// the addresses inside a tunnel. Every port is spread by it. A pipeline has at most one such stage.
    fn spread_hash(&self) -> Option<SpreadHash> {
        None
    }

    /// Why captures must go through one worker in a pipeline with this stage; `None` where several
    /// workers give the same answer.
    ///
    /// They do if what the stage makes of a packet depends on nothing but the packet, the tables and
    /// those packets before it that [`Stage::spread`] says must meet; if time is the packet's own
    /// ([`Context::arrival_ns`]); and if it parts with packets by verdicts and [`Chunk::emit`] alone,
    /// holding none. What depends on all packets before it, such as a limit to a rate of emitted
    /// packets, may be left to a [`crate::Gate`]. Packets of a chunk [overtake](Context::may_overtake) others on the same
    /// condition, also live.
    fn needs_one_worker(&self, _tables: &T) -> Option<&'static str> {
        let sends = !self.sends_to().is_empty();
        sends.then_some("it sends packets through the pipeline again or to other workers")
    }

    /// Fills columns from packets and settles odd packets by their verdict.
    fn pre_shade(&mut self, _chunk: &mut Chunk, _cx: &mut Context<'_, T>) {}

    /// Whether it may [divide](Context::divide) a chunk in its `pre_shade`, or [put packets before](Context::put_before) one of
    /// its rows. At most one stage of a pipeline does.
    fn divides(&self) -> bool {
        false
    }

    /// The step that a device can take; `None` for a stage that has none.
    fn shader(&self) -> Option<Arc<dyn Shade<T>>> {
        None
    }

    /// Applies the results to the packets. Only rows still at [`Verdict::NEXT`] and rows that this
    /// stage itself decided concern it.
    fn post_shade(&mut self, _chunk: &mut Chunk, _cx: &mut Context<'_, T>) {}

    /// Whether [`Stage::retired`] is to be called.
    fn sees_retired(&self) -> bool {
        false
    }

    /// A chunk retires: every packet goes where the verdicts say after this call, and no other stage changes them any more.
    /// Packets for the host whose interface has no twin are dropped by then (`host_absent`).
    /// One that settles packets together may drop further ones of its own here. Packets with the
    /// verdict taken are no longer here. Chunks come in the order of receipt, also those whose packets entered the pipeline
    /// behind this stage. Of a chunk that a panic ended, all packets count as dropped and none is here.
    fn retired(&mut self, _chunk: &mut Chunk, _cx: &mut Context<'_, T>) {}

    /// Housekeeping, off the packets' way: timeouts, packets that waited for something. Called when
    /// a worker is idle, when the tables have changed, and at least every 10 ms.
    fn tick(&mut self, _cx: &mut Context<'_, T>) {}

    /// When `tick` has something to do at the latest, in nanoseconds since 1970; `None` for nothing. A worker that sleeps wakes
    /// then, except over captures, whose time goes on with packets.
    fn next_tick_ns(&self) -> Option<u64> {
        None
    }

    /// When the stage wants to sweep its state next, in nanoseconds since 1970; `None` for not at all. Looked at in
    /// each turn, while none of its sweeps is under way.
    fn next_sweep_ns(&self) -> Option<u64> {
        None
    }

    /// Fills rows of a chunk without packets, by which the stage's shade looks at slots of its state where that is at
    /// home, in order with the shard's other chunks: timeouts, counters to be read. How many rows it filled, from the
    /// first on; at most [`Rows::reserved`], and 0 for no sweep.
    ///
    /// Verdicts are [`Verdict::TAKEN`], so that no other shade of the segment looks at these rows; columns of
    /// [`Stage::zeroed`] are zero. The stage says in a column of its own which rows are to be swept. On a device the
    /// changed records come back in columns to [`Shade::retired`], without packets; on the CPU the shade changes the
    /// host's copy. Neither `pre_shade` nor `post_shade` sees the chunk.
    fn sweep(&mut self, _rows: &mut Rows, _cx: &mut Context<'_, T>) -> usize {
        0
    }

    /// Packets that the stage holds (waiting for a neighbour): no other count includes them.
    fn held(&self) -> usize {
        0
    }

    /// The worker ends: whatever the stage still holds goes back through the context, each packet
    /// with its one fate.
    fn drain(&mut self, _cx: &mut Context<'_, T>) {}

    /// Takes over what `before` holds: packets, tables of its own, state. That is the instance of the same name that this
    /// one replaces at its worker while the program runs, in a pipeline of the same name, perhaps with other stages. This
    /// one has seen no packet. What is left in `before` is [drained](Stage::drain). It tells its own kind by
    /// [`Stage::as_any`].
    fn inherit(&mut self, _before: &mut dyn Stage<T>) {}

    /// Itself, for a stage that [inherits](Stage::inherit).
    fn as_any(&mut self) -> Option<&mut dyn Any> {
        None
    }

    /// What the stage made of row `row`, for `ctl trace`: text that a user reads as it is, so interfaces have their names
    /// in it.
    fn describe(&self, _chunk: &mut Chunk, _row: usize, _tables: &T) -> String {
        String::new()
    }
}

/// The phases of a stage that see packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// It has a `pre_shade`.
    pub pre_shade: bool,
    /// It has a `post_shade`.
    pub post_shade: bool,
}

impl Phases {
    /// Both: what a stage has that says nothing.
    pub const BOTH: Phases = Phases { pre_shade: true, post_shade: true };
    /// `pre_shade` alone.
    pub const PRE: Phases = Phases { pre_shade: true, post_shade: false };
    /// `post_shade` alone.
    pub const POST: Phases = Phases { pre_shade: false, post_shade: true };
    /// Neither.
    pub const NONE: Phases = Phases { pre_shade: false, post_shade: false };
}

/// Whom a packet is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Receiver {
    /// The worker of the flow with this hash.
    Flow(u32),
    /// This one.
    Worker(u16),
}

/// A packet for another worker.
#[derive(Debug)]
pub(crate) struct HandOver {
    pub(crate) packet: Packet,
    pub(crate) to: Receiver,
    pub(crate) place: u16,
    pub(crate) passes: u8,
}

/// Other workers, as one sees them.
#[derive(Clone, Copy)]
pub(crate) struct Others<'a> {
    /// Those with the pipeline of the chunk, this one among them.
    pub(crate) peers: &'a [usize],
    pub(crate) heirs: &'a Heirs,
}

/// What a stage may use while it works on a chunk.
pub struct Context<'a, T> {
    /// The worker's cells.
    pub pool: &'a mut Pool,
    /// The version of the tables that the chunk holds.
    pub tables: &'a T,
    /// Number of that version.
    pub version: u64,
    /// The chunk's time, or now in `tick`, in nanoseconds since 1970.
    pub now_ns: u64,
    /// Index of the worker.
    pub worker: u16,
    /// Where the stage's state is at home, for a stage with state: on a device its records here are those of the last
    /// chunk that came back.
    pub home: Side,
    /// Time is the packets' own.
    pub(crate) packet_time: bool,
    pub(crate) dropped: &'a mut Vec<(Packet, DropReason)>,
    pub(crate) released: &'a mut Vec<(Packet, Verdict)>,
    /// `None` apart from any worker.
    pub(crate) handed: Option<&'a mut Vec<HandOver>>,
    /// `None` apart from any worker.
    pub(crate) settled: Option<&'a mut [u32; 2]>,
    /// The row at which the stage divides the chunk; `None` apart from a `pre_shade` of a worker.
    pub(crate) divided: Option<&'a mut Option<u16>>,
    /// Rows before that one which wait, too, and which packets must not overtake each other; `None` likewise, and where none may.
    pub(crate) waiting: Option<(&'a mut Vec<u16>, Spread)>,
    /// Packets that the stage puts before that row; `None` likewise.
    pub(crate) before: Option<&'a mut Vec<Packet>>,
    /// Who has this pipeline, and who works for whom; `None` apart from any worker.
    pub(crate) others: Option<Others<'a>>,
    /// Names of the places, each with its number.
    pub(crate) places: &'a [(&'static str, u16)],
    /// By row: how often the packet went through again; empty for none.
    pub(crate) passes: &'a [u8],
    /// The row under work, where the stage says so.
    pub(crate) row: Option<usize>,
    /// That of the context that this one was made of.
    pub(crate) outer_row: Option<&'a mut Option<usize>>,
}

impl<'a, T> Context<'a, T> {
    /// A context apart from any worker, for tests of a stage: what it drops goes to `dropped`,
    /// what it releases to `released`, what it hands over there too, with [`Verdict::again`].
    pub fn detached(
        pool: &'a mut Pool,
        tables: &'a T,
        now_ns: u64,
        dropped: &'a mut Vec<(Packet, DropReason)>,
        released: &'a mut Vec<(Packet, Verdict)>,
    ) -> Self {
        Self {
            pool,
            tables,
            version: 0,
            now_ns,
            worker: 0,
            home: Side::Cpu,
            packet_time: false,
            dropped,
            released,
            handed: None,
            settled: None,
            divided: None,
            waiting: None,
            before: None,
            others: None,
            places: &[],
            passes: &[],
            row: None,
            outer_row: None,
        }
    }

    /// When a packet of the chunk came, nanoseconds since 1970: its own time over captures, where a chunk may span
    /// hours and another number of workers makes other chunks, and the chunk's where the clock is.
    #[inline]
    pub fn arrival_ns(&self, packet: &Packet) -> u64 {
        if self.packet_time { packet.time_ns } else { self.now_ns }
    }

    /// Whether there is a clock. Over captures, time is that of the packets.
    #[inline]
    pub fn is_live(&self) -> bool {
        !self.packet_time
    }

    /// Says in `post_shade` that the stage's shade has settled so many rows of the chunk: stages behind it in its
    /// segment passed over them, and do not count them among their packets.
    pub fn count_settled(&mut self, rows: u32) {
        if let Some(settled) = &mut self.settled {
            settled[0] += rows;
        }
    }

    /// Says in `post_shade` that the stage has worked on so many rows that a stage before it had settled: they count
    /// among its packets.
    pub fn count_answered(&mut self, rows: u32) {
        if let Some(settled) = &mut self.settled {
            settled[1] += rows;
        }
    }

    /// Says in `pre_shade` that the packets from `row` on are to wait until all before them have retired: what the stage
    /// makes of them depends on that. The stage must not have looked at these rows. Its `pre_shade` sees them next, as the
    /// first ones of a chunk; what stages before it wrote is still there. Their order stays. `false`: nothing waits, as apart
    /// from any worker, and the stage does the rest of the chunk now.
    #[must_use]
    pub fn divide(&mut self, row: usize) -> bool {
        let Some(divided) = &mut self.divided else { return false };
        self.waiting.iter_mut().for_each(|(rows, _)| rows.clear());
        **divided = u16::try_from(row).ok();
        divided.is_some()
    }

    /// Which packets must not overtake each other in `pre_shade`, as far as the other stages of the pipeline are concerned: those that
    /// must meet ([`Stage::spread`]). Stages see the others as they would at another worker. What leaves has the order of receipt
    /// all the same. `None`: no packet may overtake another one, as a stage [needs one worker](Stage::needs_one_worker) or spreads
    /// packets by a [hash of its own](Stage::spread_hash), or the pipeline runs over captures with one worker.
    #[inline]
    pub fn may_overtake(&self) -> Option<Spread> {
        let spread = self.waiting.as_ref().map(|(_, spread)| *spread);
        spread.filter(|_| self.divided.is_some())
    }

    /// Says in `pre_shade` that the packets of `rows`, in ascending order, and all from `end` on are to wait until all others of the
    /// chunk have retired, as [`Context::divide`] says. No packet of the chunk goes before one in `rows` that it must meet.
    /// `false`: nothing waits, and packets [may not overtake](Context::may_overtake) others.
    ///
    /// # Panics
    /// If the rows are not in ascending order, or not before `end`.
    #[must_use]
    pub fn leave(&mut self, rows: impl Iterator<Item = u16>, end: usize) -> bool {
        let (Some(divided), Some((waiting, _))) = (&mut self.divided, &mut self.waiting) else {
            return false;
        };
        waiting.clear();
        waiting.extend(rows);
        let is_ascending = waiting.is_sorted_by(|a, b| a < b);
        assert!(is_ascending && waiting.last().is_none_or(|row| usize::from(*row) < end));
        **divided = u16::try_from(end).ok();
        divided.is_some()
    }

    /// Says in `pre_shade` that these packets, which the stage held, go through the pipeline from its first stage on before
    /// `row` and the rows behind it go on. The chunk is [divided](Context::divide) there: all packets before have retired
    /// when the stage sees these, in this order, in as many chunks as they need, by themselves and as packets that went
    /// through [before](Context::is_again). So they have the place of `row` in the order, whatever else is in flight. The row
    /// itself may be settled.
    ///
    /// No single rows [wait](Context::leave) then. The stage must not divide a chunk of such packets. `false`: nothing waits, as apart from any worker; the packets are
    /// released to enter the pipeline again, and the stage does the rest of the chunk now.
    #[must_use]
    pub fn put_before(&mut self, row: usize, packets: impl Iterator<Item = Packet>) -> bool {
        match (&mut self.divided, &mut self.before) {
            (Some(divided), Some(before)) => {
                self.waiting.iter_mut().for_each(|(rows, _)| rows.clear());
                **divided = u16::try_from(row).ok();
                before.extend(packets);
                divided.is_some()
            }
            _ => {
                self.released.extend(packets.map(|packet| (packet, Verdict::again(0))));
                false
            }
        }
    }

    /// Whether the packet of a row went through the pipeline before: it was sent again, handed over, or
    /// [put before others](Context::put_before).
    #[inline]
    pub fn is_again(&self, row: usize) -> bool {
        self.passes.get(row).is_some_and(|passes| *passes > 0)
    }

    /// The same over a part of the tables, for stages that know no other.
    pub fn over<U: 'a>(&mut self, part: impl FnOnce(&'a T) -> &'a U) -> Context<'_, U> {
        Context {
            pool: self.pool,
            tables: part(self.tables),
            version: self.version,
            now_ns: self.now_ns,
            worker: self.worker,
            home: self.home,
            packet_time: self.packet_time,
            dropped: self.dropped,
            released: self.released,
            handed: self.handed.as_deref_mut(),
            settled: self.settled.as_deref_mut(),
            divided: self.divided.as_deref_mut(),
            waiting: self.waiting.as_mut().map(|(rows, spread)| (&mut **rows, *spread)),
            before: self.before.as_deref_mut(),
            others: self.others,
            places: self.places,
            passes: self.passes,
            row: self.row,
            outer_row: Some(self.outer_row.as_deref_mut().unwrap_or(&mut self.row)),
        }
    }

    /// Says which row the stage works on, so that a panic names its packet.
    #[inline]
    pub fn at(&mut self, row: usize) {
        match &mut self.outer_row {
            Some(outer) => **outer = Some(row),
            None => self.row = Some(row),
        }
    }

    /// The row that [`Context::at`] named last.
    pub fn row_at_work(&self) -> Option<usize> {
        self.outer_row.as_deref().copied().unwrap_or(self.row)
    }

    /// Ends a packet that the stage holds, counted. Packets still in the chunk are dropped by their
    /// verdict.
    pub fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        self.dropped.push((packet, reason));
    }

    /// Sends off a packet that the stage held or made, in `tick` (in `post_shade` use
    /// [`Chunk::emit`], which keeps it behind its cause).
    pub fn release(&mut self, packet: Packet, verdict: Verdict) {
        self.released.push((packet, verdict));
    }

    /// The place `name` in this pipeline, for [`Verdict::again`] and [`Context::hand_over`]; `None` if no stage lists
    /// it in [`Stage::sends_to`]. Ask once a chunk.
    pub fn place(&self, name: &str) -> Option<u16> {
        self.places.iter().find(|(known, _)| *known == name).map(|(_, place)| *place)
    }

    /// Gives a packet to the worker of the flow with this hash, where it enters the pipeline at `place`: a datagram put
    /// together from fragments, a packet out of a tunnel. `cause`: the row of the chunk that completed it, `None` in
    /// `tick`. Packets that one stage hands to one worker arrive there in their order.
    pub fn hand_over(&mut self, packet: Packet, cause: Option<usize>, hash: u32, place: u16) {
        self.hand(packet, cause, Receiver::Flow(hash), place);
    }

    /// The same to a worker by its index, or to the one that works for it. Where [`Context::hands_to`] has none, the packet is dropped.
    pub fn hand_to(&mut self, packet: Packet, cause: Option<usize>, worker: u16, place: u16) {
        self.hand(packet, cause, Receiver::Worker(worker), place);
    }

    /// How many workers the engine has; 1 apart from any worker.
    pub fn workers(&self) -> usize {
        self.others.map_or(1, |own| own.heirs.workers())
    }

    /// The worker that packets handed to `worker` come to now: that one, or who works for it. `None` where they would be lost: it does
    /// not have this pipeline, or there is none with this index.
    pub fn hands_to(&self, worker: u16) -> Option<u16> {
        let Some(Others { peers, heirs }) = self.others else { return Some(self.worker) };
        let to = heirs.of(worker.into());
        peers.contains(&to).then_some(to as u16) // workers are few
    }

    fn hand(&mut self, packet: Packet, cause: Option<usize>, to: Receiver, place: u16) {
        let before = cause.and_then(|row| self.passes.get(row)).copied().unwrap_or(0);
        let passes = before.saturating_add(1);
        match &mut self.handed {
            Some(handed) => handed.push(HandOver { packet, to, place, passes }),
            None => self.released.push((packet, Verdict::again(place))),
        }
    }
}
