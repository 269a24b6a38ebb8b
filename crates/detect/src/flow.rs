//! What is kept of a flow.

use signatures::Buffer;

use crate::Sender;
use crate::alert::Found;
use crate::header::Header;
use crate::headers::Compared;
use crate::rule::Way;
use crate::window::Window;
use crate::window::tail::Tail;

/// Transactions of a flow that are open at a time; beyond them the oldest is given up.
pub(crate) const TRANSACTIONS_MAX: usize = 256;
/// Matches of a flow that wait for a condition; beyond them the oldest is given up.
pub(crate) const WAITING_MAX: usize = 64;
/// Values of a flow that wait for the rest of their rule, and their bytes; beyond them the oldest is given up.
const VALUES_MAX: usize = 256;
const VALUES_BYTES_MAX: usize = 262_144;
/// Bits and counters of a flow; no more are set.
pub(crate) const NAMES_MAX: usize = 1_024;
/// Buffers of a transaction that are kept, and their bytes; beyond them all parts are looked for in a buffer.
pub(crate) const KEPT_MAX: usize = 128;
pub(crate) const KEPT_BYTES_MAX: usize = 16_384;
/// Buffers of a transaction that come in parts at a time.
pub(crate) const OPEN_MAX: usize = 16;

/// What rules remember of a flow. It belongs to the flow as long as it lives; nothing is taken from the heap before there
/// is something to remember.
#[derive(Debug, Default)]
pub struct FlowState {
    pub(crate) number: u64,
    /// Of a packet that belongs to no flow.
    pub(crate) is_none: bool,
    pub(crate) is_dropped: bool,
    pub(crate) is_passed: bool,
    /// The ends, once a packet was seen: the way of the client's packets.
    pub(crate) way: Option<Way>,
    /// Packets of either end were seen.
    pub(crate) seen: [bool; 2],
    /// TCP: SYN of the client, SYN with ACK of the server, ACK of the client.
    pub(crate) handshake: [bool; 3],
    /// TCP: joined without a handshake.
    pub(crate) is_midstream: bool,
    /// Whether it was established before the packet of the step.
    pub(crate) was_established: bool,
    /// What applications are spoken, by sender: Suricata's names.
    pub(crate) application: [Option<&'static str>; 2],
    /// Rules of addresses and of applications were tried, by sender.
    pub(crate) addresses_done: [bool; 2],
    pub(crate) application_done: [bool; 2],
    /// Bytes of each end's stream.
    pub(crate) stream_bytes: [u64; 2],
    /// Bits that are set, sorted.
    pub(crate) bits: Vec<u32>,
    /// Counters, sorted by number.
    pub(crate) counters: Vec<(u32, u32)>,
    /// The message that each end sends.
    pub(crate) messages: [Window; 2],
    /// What each end sent in messages before.
    pub(crate) tails: [Tail; 2],
    /// Which headers of rules hold, by sender.
    pub(crate) headers: [Compared; 2],
    /// What follows of the stream is encrypted.
    pub(crate) is_encrypted: bool,
    /// Who sent last.
    pub(crate) last: Option<Sender>,
    /// Rules whose payload was found, of those that ask for transactions too: with the sender.
    pub(crate) payloads: Vec<(u32, Sender)>,
    pub(crate) transactions: Vec<Transaction>,
    /// What parts of rules were found in that are on sets which rules write.
    pub(crate) values: Vec<Value>,
    /// Matches whose conditions do not hold yet.
    pub(crate) waiting: Vec<Match>,
    /// The ruleset that numbers of rules are of.
    pub(crate) generation: u64,
    /// Bytes of memory, as they were last counted.
    pub(crate) memory: usize,
}

/// A rule that was found, but for its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) rule: u32,
    pub(crate) found: Found,
    pub(crate) sender: Sender,
    /// The application is not known yet, which it depends on.
    pub(crate) waits: bool,
}

/// Bytes that a part of a rule holds of, but for the sets that rules write.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) rule: u32,
    pub(crate) part: u32,
    /// That of the buffer; none: of a payload or header.
    pub(crate) transaction: Option<u64>,
    pub(crate) bytes: Box<[u8]>,
}

/// A transaction that is open.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) number: u64,
    /// Rules ([`Compiled::once`]) and the bits of their parts that were found, sorted.
    ///
    /// [`Compiled::once`]: crate::rule::Compiled::once
    pub(crate) found: Vec<(u64, u32)>,
    /// Rules that matched, each once ([`Compiled::once`]), sorted.
    ///
    /// [`Compiled::once`]: crate::rule::Compiled::once
    pub(crate) done: Vec<u64>,
    /// Which buffers there were, by sender: a bit each.
    pub(crate) seen: [[u64; 3]; 2],
    pub(crate) ended: [bool; 2],
    /// Buffers that come in parts.
    pub(crate) open: Vec<Open>,
    /// Buffers for parts whose rule's key is not found yet: which, whose, and where in `bytes`.
    pub(crate) kept: Vec<Kept>,
    pub(crate) bytes: Vec<u8>,
}

/// A buffer that came as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) buffer: Buffer,
    pub(crate) sender: Sender,
    pub(crate) begin: usize,
    pub(crate) end: usize,
}

/// A buffer that comes in parts.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) buffer: Buffer,
    pub(crate) number: u32,
    pub(crate) sender: Sender,
    /// Checks without transforms.
    pub(crate) window: Window,
    /// What transforms are applied to once all of it is there, up to a bound.
    pub(crate) raw: Vec<u8>,
}

impl Transaction {
    /// Bytes of memory that it holds.
    fn memory(&self) -> usize {
        let open = self.open.iter().map(|own| own.window.memory() + own.raw.capacity());
        size_of::<Self>()
            + self.found.capacity() * size_of::<(u64, u32)>()
            + self.done.capacity() * size_of::<u64>()
            + self.open.capacity() * size_of::<Open>()
            + self.kept.capacity() * size_of::<Kept>()
            + self.bytes.capacity()
            + open.sum::<usize>()
    }

    /// Keeps a buffer, if there is room for it.
    pub(crate) fn keep(&mut self, buffer: Buffer, sender: Sender, bytes: &[u8]) -> bool {
        let begin = self.bytes.len();
        let has_room = begin + bytes.len() <= KEPT_BYTES_MAX && self.kept.len() < KEPT_MAX;
        if has_room {
            self.bytes.extend_from_slice(bytes);
            self.kept.push(Kept { buffer, sender, begin, end: self.bytes.len() });
        }
        has_room
    }

    pub(crate) fn see(&mut self, buffer: Buffer, sender: Sender) {
        self.seen[sender.index()][buffer as usize / 64] |= 1 << (buffer as usize % 64);
    }

    pub(crate) fn has_seen(&self, buffer: Buffer, sender: Sender) -> bool {
        self.seen[sender.index()][buffer as usize / 64] & 1 << (buffer as usize % 64) != 0
    }
}

impl FlowState {
    /// Of the flow with this number, which thresholds by flow tell flows apart by.
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    /// The application that `sender` speaks, by Suricata's name (`http`, `tls`, …), is known now; `failed` where it is known
    /// that it is none of them.
    pub fn set_application(&mut self, sender: Sender, name: &'static str) {
        self.application[sender.index()] = Some(name);
    }

    /// What follows of the stream is encrypted: payloads of its packets are not searched any more. Bytes of it in the clear, which
    /// the step has not had, may still be given ([`Detector::data`](crate::Detector::data)).
    pub fn set_encrypted(&mut self) {
        self.is_encrypted = true;
    }

    /// The end that was taken for the client is the server: what is kept by end changes places.
    pub fn reverse(&mut self) {
        self.way = self.way.map(Way::back);
        self.seen.reverse();
        self.application.reverse();
        self.addresses_done.reverse();
        self.application_done.reverse();
        self.stream_bytes.reverse();
        self.messages.reverse();
        self.tails.reverse();
        self.headers.reverse();
        self.last = self.last.map(Sender::other);
        for own in &mut self.waiting {
            own.sender = own.sender.other();
        }
    }

    /// The place of the next byte of what `sender` sends.
    pub fn stream_bytes(&self, sender: Sender) -> u64 {
        self.stream_bytes[sender.index()]
    }

    /// Whether a rule dropped the flow: what follows of it is not inspected.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped
    }

    /// Whether a rule passed the flow: what follows of it is not inspected.
    pub fn is_passed(&self) -> bool {
        self.is_passed
    }

    /// Inspection of the flow ends: `drops` as if a rule had dropped it, otherwise as if one had passed it.
    pub fn give_up(&mut self, drops: bool) {
        (self.is_dropped, self.is_passed) = (self.is_dropped | drops, self.is_passed | !drops);
        self.transactions.clear();
        self.give_memory_back(0);
    }

    /// Whether both ends spoke; of TCP, whether the handshake is over.
    pub fn is_established(&self) -> bool {
        match self.way {
            Some(way) if way.protocol == 6 => self.is_midstream || self.handshake == [true; 3],
            _ => self.seen == [true; 2],
        }
    }

    /// The way of what `sender` sends.
    pub(crate) fn way_of(&self, sender: Sender) -> Option<Way> {
        match sender {
            Sender::Client => self.way,
            Sender::Server => self.way.map(Way::back),
        }
    }

    /// A packet of the flow. Returns whether its payload belongs to the stream.
    pub(crate) fn see(&mut self, header: &Header, sender: Sender, midstream: bool) -> bool {
        let way = way_of_packet(header);
        let was_established = self.is_established();
        self.way.get_or_insert(if sender == Sender::Client { way } else { way.back() });
        self.seen[sender.index()] = true;
        // The answer establishes a flow; of TCP, what follows the handshake is the first that finds it established.
        self.was_established = was_established || header.protocol != 6 && self.is_established();
        let Some(tcp) = header.tcp else { return false };
        let (syn, ack) = (tcp.flags & 2 != 0, tcp.flags & 16 != 0);
        let [first, second, third] = &mut self.handshake;
        match (sender, syn, ack) {
            (Sender::Client, true, false) => *first = true,
            (Sender::Server, true, true) if *first => *second = true,
            (Sender::Client, false, true) if *second => *third = true,
            (_, false, _) if midstream && !*first => self.is_midstream = true,
            (_, true, true) if midstream && !*first => self.is_midstream = true,
            // The other direction was not captured.
            (Sender::Client, false, true) if midstream && *first => self.is_midstream = true,
            _ => {}
        }
        // Hosts drop what has neither SYN, ACK nor RST; it is no part of the stream.
        !syn && ack && self.is_established()
    }

    pub(crate) fn transaction(&mut self, number: u64) -> &mut Transaction {
        let found = self.transactions.binary_search_by_key(&number, |own| own.number);
        let at = found.unwrap_or_else(|at| {
            self.transactions.insert(at, Transaction { number, ..Transaction::default() });
            at
        });
        if self.transactions.len() > TRANSACTIONS_MAX && at > 0 {
            self.transactions.remove(0);
            return &mut self.transactions[at - 1];
        }
        &mut self.transactions[at]
    }

    /// Counts the bytes of memory that streams, transactions and matches hold.
    pub(crate) fn count_memory(&mut self) {
        let values = self.values.iter().map(|own| own.bytes.len() + size_of::<Value>());
        self.memory = self.messages.iter().map(Window::memory).sum::<usize>()
            + self.tails.iter().map(Tail::memory).sum::<usize>()
            + self.transactions.iter().map(Transaction::memory).sum::<usize>()
            + values.sum::<usize>()
            + self.waiting.capacity() * size_of::<Match>();
    }

    /// Gives the memory of streams back, and that of transactions if it then holds more than `most` bytes.
    pub(crate) fn give_memory_back(&mut self, most: usize) {
        (self.messages, self.tails) = Default::default();
        self.count_memory();
        if self.memory > most {
            for own in &mut self.transactions {
                (own.open, own.kept, own.bytes) = Default::default();
            }
            self.values = Vec::new();
            self.count_memory();
        }
    }

    /// Keeps a value; beyond the bounds the oldest are given up.
    pub(crate) fn keep_value(&mut self, value: Value) {
        let is_same = |own: &Value| {
            (own.part, own.transaction) == (value.part, value.transaction)
                && own.bytes == value.bytes
        };
        if self.values.iter().any(is_same) {
            return;
        }
        let mut bytes: usize = self.values.iter().map(|own| own.bytes.len()).sum();
        bytes += value.bytes.len();
        while !self.values.is_empty()
            && (self.values.len() == VALUES_MAX || bytes > VALUES_BYTES_MAX)
        {
            bytes -= self.values.remove(0).bytes.len();
        }
        self.values.push(value);
    }

    pub(crate) fn has_bit(&self, id: u32) -> bool {
        self.bits.binary_search(&id).is_ok()
    }

    pub(crate) fn set_bit(&mut self, id: u32, set: bool) {
        match (self.bits.binary_search(&id), set) {
            (Err(at), true) if self.bits.len() < NAMES_MAX => self.bits.insert(at, id),
            (Ok(at), false) => {
                self.bits.remove(at);
            }
            _ => {}
        }
    }

    pub(crate) fn counter(&self, id: u32) -> Option<u32> {
        let found = self.counters.binary_search_by_key(&id, |(own, _)| *own);
        found.ok().map(|at| self.counters[at].1)
    }

    pub(crate) fn set_counter(&mut self, id: u32, value: u32) {
        match self.counters.binary_search_by_key(&id, |(own, _)| *own) {
            Ok(at) => self.counters[at].1 = value,
            Err(at) if self.counters.len() < NAMES_MAX => self.counters.insert(at, (id, value)),
            Err(_) => {}
        }
    }

    /// Forgets what is by numbers of rules: there are others.
    pub(crate) fn forget_rules(&mut self, generation: u64) {
        self.messages.iter_mut().for_each(Window::reset);
        self.tails.iter_mut().for_each(Tail::reset);
        self.headers.iter_mut().for_each(Compared::forget);
        self.payloads.clear();
        self.transactions.clear();
        self.waiting.clear();
        self.values.clear();
        self.generation = generation;
    }
}

/// The way of a packet.
pub(crate) fn way_of_packet(header: &Header) -> Way {
    Way {
        source: header.source,
        destination: header.destination,
        source_port: header.ports.0,
        destination_port: header.ports.1,
        protocol: header.protocol,
    }
}
