//! Packets through tables, groups and meters.
//!
//! ```text
//!          ┌───────────────── for each table, in ascending order ─────────────────┐
//!  frames ─┴▶ keys of all rows that are there ─▶ one lookup ─▶ instructions by row ─┴─▶ action sets ─▶ Egress
//!                                                   │ apply-actions: outputs, groups at once
//! ```
//!
//! GOTO leads to later tables only, so one pass over the tables looks up all packets of a batch that meet there
//! together. An output waits until the next action: if that is the last one, the frame itself goes, without a copy. Groups run their
//! buckets on copies, but for the last one if nothing follows.
//!
//! Most packets leave by a port that the first table names, and nothing else becomes of them. So packets may be read and looked up before
//! they are rows ([`Pipeline::read`]), where they are: only those that need more are moved and become rows, with what has been found.
//!
//! A packet that makes too many copies ([`COPIES_MAX`]) makes no more: groups that lead to groups multiply.
//!
//! Threads: a [`Pipeline`] belongs to a worker.

use openflow::flow::InReason;
use openflow::{Action, PortNo};

use crate::action_set::ActionSet;
use crate::edit::Frame;
use crate::flow::{Counting, Flow};
use crate::headers::{self, Headers};
use crate::key::Key;
use crate::run::{Next, Row, Run, Work};
use crate::tables::FlowTables;
use crate::walk::{MISS, OPEN, Path};

/// Frames that one packet may become.
pub const COPIES_MAX: u32 = 1024;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The port: an ordinary one or LOCAL that there is, NORMAL or CONTROLLER.
    pub port: PortNo,
    /// The port of entry.
    pub in_port: PortNo,
    /// The queue of the port, if one was set.
    pub queue: Option<u32>,
    /// To the controller: what it is told.
    pub controller: Option<ToController>,
}

/// What a controller is told of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToController {
    /// Bytes of it that are sent.
    pub max_len: u16,
    /// Why.
    pub reason: InReason,
    /// The table of the flow.
    pub table: u8,
    /// The cookie of the flow; all ones: none.
    pub cookie: u64,
    /// The metadata of the packet.
    pub metadata: u64,
    /// Its tunnel.
    pub tunnel_id: u64,
}

/// Why a packet, or a copy of one, goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dropped {
    /// No flow took it.
    Miss,
    /// The flows that took it send it nowhere.
    Actions,
    /// A meter.
    Meter,
    /// Its TTL ended.
    Ttl,
    /// No room for another tag, or no cell for a copy.
    NoRoom,
    /// The only port that it was sent to is not there, is down, is that of entry, or may not send.
    Port,
    /// A group has no live bucket, or is not there.
    Group,
}

/// What becomes of frames: the world around the tables.
pub trait Egress {
    /// Frames.
    type Frame: Frame;

    /// A copy; `None` where there is no room.
    fn copy(&mut self, frame: &Self::Frame) -> Option<Self::Frame>;

    /// A frame of row `row` goes somewhere.
    fn send(&mut self, row: usize, frame: Self::Frame, to: &Sent);

    /// A row is done. `frame`: what was not sent; `why`: the reason if nothing was sent.
    fn done(&mut self, row: usize, frame: Option<Self::Frame>, why: Option<Dropped>);

    /// A copy that goes nowhere.
    fn free(&mut self, frame: Self::Frame);
}

/// Who looks on: a trace.
pub trait Observer {
    /// Whether flows and groups count the packets, and meters measure them.
    const COUNTS: bool = true;

    /// Whether it wants to hear of lookups and actions.
    const LOOKS: bool = true;

    /// A packet was looked up in a table.
    fn looked_up(&mut self, _row: usize, _table: u8, _key: &Key, _flow: Option<&Flow>) {}

    /// An action is carried out.
    fn acts(&mut self, _row: usize, _action: &Action) {}
}

/// Nobody.
impl Observer for () {
    const LOOKS: bool = false;
}

/// Nobody, and nothing is counted or measured: what would become of a packet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dry;

impl Observer for Dry {
    const COUNTS: bool = false;
    const LOOKS: bool = false;
}

/// Counters of lookups, by table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Packets looked up.
    pub looked_up: u64,
    /// Packets that a flow took.
    pub matched: u64,
}

/// Packets that [`Pipeline::read`] takes until they are looked up: as many as a near cache has room for.
pub const FIRSTS: usize = 64;

/// Packets that are read and looked up in the first table where they are: most of them leave by a port, and need no more.
struct Firsts {
    keys: Box<[Key; FIRSTS]>,
    headers: [Headers; FIRSTS],
    found: [Option<u32>; FIRSTS],
    len: usize,
}

/// The packets of a batch.
pub struct Pipeline<F> {
    who: Counting,
    firsts: Firsts,
    rows: Vec<Row<F>>,
    sets: Vec<ActionSet>,
    headers: Vec<u32>,
    here: Vec<usize>,
    found: Vec<Option<u32>>,
    lookups: Vec<Lookups>,
    /// By row: what is known of its way. Empty where nothing is of any.
    known: Vec<Known>,
    open: Vec<usize>,
    looked_up: Vec<Option<u32>>,
}

/// What is known of a row's way, and how much of it is over.
#[derive(Debug, Clone, Copy)]
struct Known {
    path: Path,
    step: u8,
}

impl<F: Frame> Default for Pipeline<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: Frame> Pipeline<F> {
    /// An empty one.
    pub fn new() -> Self {
        let firsts = Firsts {
            keys: Box::new([Key::default(); FIRSTS]),
            headers: [Headers::default(); FIRSTS],
            found: [None; FIRSTS],
            len: 0,
        };
        Self {
            who: Counting::ANYBODY,
            firsts,
            rows: Vec::with_capacity(crate::tables::BATCH),
            sets: Vec::new(),
            headers: Vec::new(),
            here: Vec::with_capacity(crate::tables::BATCH),
            found: Vec::with_capacity(crate::tables::BATCH),
            lookups: vec![Lookups::default(); 256],
            known: Vec::new(),
            open: Vec::new(),
            looked_up: Vec::new(),
        }
    }

    /// The same for a worker: flows whose packets it sees first are counted without locked instructions.
    pub fn of_worker() -> Self {
        Self { who: Counting::worker(), ..Self::new() }
    }

    /// Lookups of a table since the start.
    pub fn lookups(&self) -> &[Lookups] {
        &self.lookups
    }

    /// Adds a frame that came in by a port at a time.
    pub fn push(&mut self, number: usize, frame: F, in_port: PortNo, now_ns: u64) {
        self.rows.push(Row::of(number, Work::of(frame, in_port), in_port, now_ns));
    }

    /// Reads a packet that is to be looked up in the first table before anything else: for those of [`Pipeline::read`] since
    /// the last call, [`Pipeline::look_up_read`] does that, and then [`Pipeline::direct`] or [`Pipeline::push_read`] follows for each
    /// by its place among them. The frame may be only the first part of one of `frame_len` bytes.
    ///
    /// # Panics
    /// If there are more than [`FIRSTS`].
    #[inline]
    pub fn read(&mut self, frame: &[u8], frame_len: usize, in_port: PortNo) {
        let Firsts { keys, headers, len, .. } = &mut self.firsts;
        headers::read_into(frame, frame_len, in_port.0, &mut keys[*len], 0, &mut headers[*len]);
        *len += 1;
    }

    /// Forgets what was read and not looked up, as a stage that panicked leaves it.
    #[inline]
    pub fn begin_reading(&mut self) {
        self.firsts.len = 0;
    }

    /// Looks up what was read.
    pub fn look_up_read(&mut self, tables: &FlowTables) {
        let Firsts { keys, found, len, .. } = &mut self.firsts;
        let found = &mut found[..*len];
        tables.look_up(0, |at| &keys[at], &mut self.headers, found);
        found.iter().flatten().for_each(|id| tables.prefetch_flow(*id));
        found.iter().flatten().for_each(|id| tables.prefetch_counters(*id));
        *len = 0;
    }

    /// What `way` says of the port by which a packet that was read leaves, if its flow does nothing else and the port sends; the flow has
    /// counted it then. `None`: it is to be [pushed](Pipeline::push_read).
    #[inline]
    pub fn direct<R>(
        &mut self,
        at: usize,
        tables: &FlowTables,
        (in_port, frame_len, now_ns): (PortNo, usize, u64),
        way: impl FnOnce(PortNo) -> Option<R>,
    ) -> Option<R> {
        let flow = tables.direct(self.firsts.found[at]?)?;
        // A packet goes back by IN_PORT alone.
        if flow.port == in_port || !tables.sends(flow.port) {
            return None;
        }
        let way = way(flow.port)?;
        flow.counters.add(&self.who, frame_len, now_ns);
        let lookups = &mut self.lookups[0];
        (lookups.looked_up, lookups.matched) = (lookups.looked_up + 1, lookups.matched + 1);
        Some(way)
    }

    /// [`Pipeline::push`] of a packet that was read and looked up, with the tables of the next [`Pipeline::run`].
    pub fn push_read(&mut self, at: usize, number: usize, frame: F, in_port: PortNo, now_ns: u64) {
        let Firsts { keys, headers, found, .. } = &self.firsts;
        let work = Work::with(frame, keys[at], headers[at]);
        let mut path = Path::OPEN;
        path.0[0] = found[at].unwrap_or(MISS);
        self.known.resize(self.rows.len(), Known { path: Path::OPEN, step: 0 });
        self.rows.push(Row::of(number, work, in_port, now_ns));
        self.known.push(Known { path, step: 0 });
    }

    /// Whether there is no frame to bring anywhere.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The same for a frame whose way is known ([`walk`](mod@crate::walk)), with the tables of the next [`Pipeline::run`].
    pub fn push_known(
        &mut self,
        number: usize,
        frame: F,
        in_port: PortNo,
        now_ns: u64,
        path: Path,
    ) {
        self.known.resize(self.rows.len(), Known { path: Path::OPEN, step: 0 });
        self.push(number, frame, in_port, now_ns);
        self.known.push(Known { path, step: 0 });
    }

    /// Brings all frames where they go.
    pub fn run<E: Egress<Frame = F>>(
        &mut self,
        tables: &FlowTables,
        egress: &mut E,
        observer: &mut impl Observer,
    ) {
        if self.sets.len() < self.rows.len() {
            self.sets.resize(self.rows.len(), ActionSet::default());
        }
        let mut table = 0;
        loop {
            self.here.clear();
            self.here
                .extend((0..self.rows.len()).filter(|row| self.rows[*row].next == Some(table)));
            self.pass(table, tables, egress, observer);
            // No row waits for a table that has been.
            match self.rows.iter().filter_map(|row| row.next).min() {
                Some(next) => table = next,
                None => break,
            }
        }
        let who = &self.who;
        for (row, set) in self.rows.iter_mut().zip(&mut self.sets) {
            let mut run = Run { tables, egress, observer, who };
            run.finish(row, set);
        }
        self.rows.clear();
        self.known.clear();
    }

    /// Carries out actions of a PACKET_OUT on a frame; those to TABLE begin with the first table.
    pub fn act<E: Egress<Frame = F>>(
        &mut self,
        tables: &FlowTables,
        actions: &[Action],
        (frame, in_port, now_ns): (F, PortNo, u64),
        egress: &mut E,
    ) {
        self.push(0, frame, in_port, now_ns);
        let (before, mut to_table, mut behind) = (actions, false, &actions[actions.len()..]);
        let at = actions
            .iter()
            .position(|action| matches!(action, Action::Output { port: PortNo::TABLE, .. }));
        let before = match at {
            Some(at) => {
                to_table = true;
                behind = &actions[at + 1..];
                &actions[..at]
            }
            None => before,
        };
        let mut observer = ();
        let mut run = Run { tables, egress, observer: &mut observer, who: &self.who };
        let row = &mut self.rows[0];
        let goes_on = run.list(row, before, !to_table);
        row.next = None;
        if to_table && matches!(goes_on, Next::GoesOn) {
            run.flush(row);
            // What follows sees the packet as it is now; the tables get it as well.
            if !behind.is_empty()
                && let Some(work) = &row.work
                && let Some(copy) = run.egress.copy(&work.frame)
            {
                let mut own = Row { work: Some(Work::of(copy, in_port)), ..row.like() };
                run.list(&mut own, behind, true);
                run.end_copy(row, own);
            }
            row.next = Some(0);
        }
        self.run(tables, egress, &mut ());
    }

    /// The rows that are in a table.
    fn pass<E: Egress<Frame = F>>(
        &mut self,
        table: u8,
        tables: &FlowTables,
        egress: &mut E,
        observer: &mut impl Observer,
    ) {
        let Self { who, rows, sets, headers, here, found, lookups, known, open, looked_up, .. } =
            self;
        let who = &*who;
        for row in &*here {
            rows[*row].refresh();
        }
        found.clear();
        found.resize(here.len(), None);
        {
            let key = |row: usize| rows[row].work.as_ref().map_or(&NO_KEY, |work| &work.key);
            if known.is_empty() {
                tables.look_up(table, |at| key(here[at]), headers, found);
            } else {
                open.clear();
                for (at, row) in here.iter().enumerate() {
                    match known.get_mut(*row).and_then(|own| own.next(table, tables)) {
                        Some(flow) => found[at] = flow,
                        None => open.push(at),
                    }
                }
                looked_up.clear();
                looked_up.resize(open.len(), None);
                tables.look_up(table, |at| key(here[open[at]]), headers, looked_up);
                for (at, flow) in open.iter().zip(&*looked_up) {
                    found[*at] = *flow;
                }
            }
        }
        for id in found.iter().flatten() {
            tables.prefetch_flow(*id);
        }
        for id in found.iter().flatten() {
            tables.prefetch_counters(*id);
        }
        let lookups = &mut lookups[usize::from(table)];
        lookups.looked_up += here.len() as u64;
        for (row, found) in here.iter().zip(&*found) {
            let (row, set) = (&mut rows[*row], &mut sets[*row]);
            row.next = None;
            let mut run = Run { tables, egress, observer, who };
            if let Some(direct) = found.and_then(|id| tables.direct(id))
                && run.direct(row, direct)
            {
                lookups.matched += 1;
                continue;
            }
            let flow = found.and_then(|id| tables.flow(id));
            if let Some(work) = &row.work {
                run.observer.looked_up(row.number, table, &work.key, flow);
            }
            match flow {
                Some(flow) => {
                    lookups.matched += 1;
                    run.instructions(row, set, flow);
                }
                None => run.miss(row, set, table),
            }
        }
    }
}

impl Known {
    /// What takes the packet in the next table, a flow or none; `None` where that is not known.
    fn next(&mut self, table: u8, tables: &FlowTables) -> Option<Option<u32>> {
        let found = self.path.0.get(usize::from(self.step)).copied()?;
        self.step += 1;
        let is_of_table = |id: u32| tables.flow(id).is_some_and(|flow| flow.table == table);
        match found {
            MISS => Some(None),
            id if id != OPEN && is_of_table(id) => Some(Some(id)),
            _ => {
                self.path = Path::OPEN;
                None
            }
        }
    }
}

static NO_KEY: Key = Key([0; crate::key::WORDS]);
