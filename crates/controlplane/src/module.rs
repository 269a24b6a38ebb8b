//! Modules in Rust: what is done with packets at each layer, with a state for each flow (GASPP §3.1).
//!
//! ```text
//!  packet ─▶ process_eth ─▶ process_ip ─▶ process_udp │ process_tcp ─▶ process_stream, for each piece of in-order bytes
//!  of one module; then those of the next one
//! ```
//!
//! A [`Module`] implements those functions that it needs. [`Descriptor::of_module`](crate::Descriptor::of_module) makes
//! it known to a program, and `[[module]] kind = "NAME"` of the configuration uses it. The stage `modules` calls it: the
//! modules of a program share one decode and one flow state. This file knows no flow table: a flow is a place in an array.
//!
//! Threads: an instance per worker.

pub mod reasons;
mod table;

use std::cell::RefCell;

use chunk::{DropReason, Packet};
use packet::{Anomaly, Decoded, IpProtocol};

pub use reasons::{MODULE_DROP, MODULE_FAILED};
pub use table::{Full, PROBES, Table};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Act {
    /// It goes on: to the next function, the next module, the next stage.
    #[default]
    Pass,
    /// It is dropped, for [`MODULE_DROP`] or a reason of a block that its [`ModuleKind`] declares.
    Drop(DropReason),
    /// It goes on, and no later module sees this packet or a later one of its flow.
    Ignore,
    /// It goes to Linux, by the twin of the port that it came in by.
    ToHost,
    /// It goes to the capture of dumped packets and nowhere else.
    Dump,
}

/// Which packet it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketId {
    /// The worker that has it.
    pub worker: u16,
    /// Its number among the packets that this worker's modules saw, from 0.
    pub number: u64,
    /// The port that it came in by.
    pub port: u16,
    /// When it came, nanoseconds since 1970.
    pub arrival_ns: u64,
    /// The number of its flow, the same in each run over a capture; 0 for a packet of none.
    pub flow: u64,
    /// Whether it came from the end of the flow that answers.
    pub is_reply: bool,
}

/// A packet, and what a module may use for it.
pub struct PacketAt<'a> {
    /// Which one it is.
    pub id: PacketId,
    /// The packet, whose bytes a module may change; with checksums that it changes itself.
    pub packet: &'a mut Packet,
    /// Its headers, as they were before the first module.
    pub decoded: &'a Decoded,
    /// Its contexts, a bit each (GASPP's context key): those that earlier stages and modules set, to which a module adds.
    pub context: &'a mut u32,
    /// The contexts of the configuration in the order of their bits.
    pub contexts: &'a [String],
    /// The UDP datagram that became whole with this fragment; where fragments are held back, with the first of them that goes on.
    pub joined: Option<Joined<'a>>,
}

/// A UDP datagram that came in fragments.
#[derive(Clone, Copy, Debug)]
pub struct Joined<'a> {
    /// Its headers: those of a packet that is no fragment.
    pub decoded: &'a Decoded,
    /// It, with the link header of its fragments. Changes have to be made to the fragments.
    pub frame: &'a [u8],
}

impl PacketAt<'_> {
    /// The bit of a context; 0 where the configuration has none of that name.
    pub fn bit(&self, name: &str) -> u32 {
        let number = self.contexts.iter().position(|own| own == name);
        number.filter(|number| *number < 32).map_or(0, |number| 1 << number)
    }

    /// The bytes behind the header of the upper layer, as far as they are in the first cell of the frame; none for what is
    /// neither UDP nor TCP. In [`Module::process_udp`] those of the whole datagram, whether it came in fragments or not.
    pub fn payload(&self) -> &[u8] {
        let frame = match self.joined {
            Some(joined) if !self.decoded.has(Decoded::FRAGMENT) => joined.frame,
            _ => self.packet.data(),
        };
        let begin = payload_offset(self.decoded, frame).unwrap_or(usize::MAX);
        let end = self.decoded.l3_end().min(frame.len());
        frame.get(begin..end.max(begin)).unwrap_or_default()
    }
}

/// Where the payload of UDP or TCP begins.
pub fn payload_offset(decoded: &Decoded, frame: &[u8]) -> Option<usize> {
    let l4 = usize::from(decoded.l4_offset);
    match decoded.protocol {
        IpProtocol::UDP => Some(l4 + 8),
        IpProtocol::TCP => Some(l4 + 4 * usize::from(frame.get(l4 + 12)? >> 4)),
        _ => None,
    }
}

/// Whether modules see a frame as an IP packet: its header is right. Who sent it, and to whom, is not judged.
pub fn is_right(d: &Decoded) -> bool {
    let martian = matches!(d.anomaly, Anomaly::MartianSource | Anomaly::MartianDestination);
    d.is_ip() && (d.anomaly == Anomaly::None || martian)
}

/// Bytes of a TCP connection in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Whether the end that answers sent them.
    pub is_reply: bool,
    /// The place of their first byte in what this end sent, from 0. If it is not where the piece before ended, bytes are
    /// missing that will not come.
    pub offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// The parameters of a module, by name.
pub struct Parameters<'a> {
    all: &'a [(String, u32)],
    /// Names that the module has asked for.
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Parameters<'a> {
    /// Those of a configuration.
    pub fn new(all: &'a [(String, u32)]) -> Self {
        Self { all, known: RefCell::default() }
    }

    /// The value of a parameter, or its default.
    pub fn get(&self, name: &'static str, default: u32) -> u32 {
        self.known.borrow_mut().push(name);
        let own = self.all.iter().find(|(own, _)| own == name);
        own.map_or(default, |(_, value)| *value)
    }

    /// A parameter that the module did not ask for.
    fn unknown(&self) -> Option<String> {
        let known = self.known.borrow();
        let (name, _) = self.all.iter().find(|(name, _)| !known.contains(&name.as_str()))?;
        Some(match known.as_slice() {
            [] => format!("unknown parameter `{name}`: the module has none"),
            known => format!("unknown parameter `{name}`: expected {}", known.join(", ")),
        })
    }
}

/// What is done with packets at each layer. Every function lets packets pass unless the module has one of its own.
///
/// `Default`: the module of one worker at the start.
pub trait Module: Default + Send + 'static {
    /// What it keeps for each flow; the default for a new one. Both directions share it. A packet of no flow (not IP, a
    /// fragment that is not the last of its datagram, or a full flow table) has one of its own that is then forgotten.
    type State: Default + Send + 'static;
    /// Its name, as in `[[module]] kind`.
    const NAME: &'static str;
    /// One sentence: what it is for.
    const ABOUT: &'static str = "";
    /// Why captures must go through one worker: something of it depends on packets of other flows.
    const NEEDS_ONE_WORKER: Option<&'static str> = None;

    /// Whether it uses flows: a state for each, their numbers, or streams. A configuration whose modules all do without has no
    /// flow table.
    const USES_FLOWS: bool = true;

    /// Takes parameters of the configuration.
    ///
    /// # Errors
    /// One has a value that makes no sense, in words.
    fn set_up(&mut self, _parameters: &Parameters<'_>) -> Result<(), String> {
        Ok(())
    }

    /// A frame.
    fn process_eth(&mut self, _at: &mut PacketAt<'_>) -> Act {
        Act::Pass
    }

    /// An IPv4 or IPv6 packet whose header is right.
    fn process_ip(&mut self, _at: &mut PacketAt<'_>, _flow: &mut Self::State) -> Act {
        Act::Pass
    }

    /// A UDP datagram. One that came in fragments comes with the last of them that came, or, where fragments are held back, with the
    /// first that goes on: `at.packet` is that fragment, but `at.decoded` and [`PacketAt::payload`] are those of the datagram, which is
    /// [`PacketAt::joined`]. What the module decides is about that fragment; where fragments are held back, all of a datagram are
    /// dropped if one is.
    fn process_udp(&mut self, _at: &mut PacketAt<'_>, _flow: &mut Self::State) -> Act {
        Act::Pass
    }

    /// A TCP segment; no fragment.
    fn process_tcp(&mut self, _at: &mut PacketAt<'_>, _flow: &mut Self::State) -> Act {
        Act::Pass
    }

    /// Bytes of a TCP connection in order: those that the packet has, and those that waited for it. Called once for each
    /// piece. A segment in fragments comes with the last one of them that came. [`Act::Drop`] and the like decide about the packet
    /// that brought them, and about later packets that carry some of its new bytes again: those are not given to the module.
    fn process_stream(
        &mut self,
        _at: &mut PacketAt<'_>,
        _piece: Piece<'_>,
        _flow: &mut Self::State,
    ) -> Act {
        Act::Pass
    }
}

/// A Rust module that a program has.
#[derive(Clone, Copy)]
pub struct ModuleKind {
    /// Its name.
    pub name: &'static str,
    /// One sentence: what it is for.
    pub about: &'static str,
    /// See [`Module::NEEDS_ONE_WORKER`].
    pub needs_one_worker: Option<&'static str>,
    /// See [`Module::USES_FLOWS`].
    pub uses_flows: bool,
    /// Makes that of a worker.
    ///
    /// # Errors
    /// A parameter is unknown or wrong.
    pub make: MakeModule,
}

/// See [`ModuleKind::make`].
pub type MakeModule = fn(&[(String, u32)]) -> Result<Box<dyn AnyModule>, String>;

impl ModuleKind {
    /// That of a module.
    pub const fn of<M: Module>() -> Self {
        let needs_one_worker = M::NEEDS_ONE_WORKER;
        let uses_flows = M::USES_FLOWS;
        Self { name: M::NAME, about: M::ABOUT, needs_one_worker, uses_flows, make: make::<M> }
    }
}

fn make<M: Module>(parameters: &[(String, u32)]) -> Result<Box<dyn AnyModule>, String> {
    let parameters = Parameters::new(parameters);
    let mut module = M::default();
    module.set_up(&parameters)?;
    match parameters.unknown() {
        Some(message) => Err(message),
        None => Ok(Box::new(Stateful { module, states: Vec::new() })),
    }
}

/// A module with the states of its flows.
pub trait AnyModule: Send {
    /// A flow begins in this place.
    fn begin(&mut self, slot: usize);

    /// Calls the module's functions for a packet of the flow in this place, layer by layer, until one does not let it pass. A piece is
    /// taken only to be processed.
    fn process<'p>(
        &mut self,
        at: &mut PacketAt<'_>,
        slot: Option<usize>,
        pieces: &mut dyn Iterator<Item = Piece<'p>>,
    ) -> Act;
}

struct Stateful<M: Module> {
    module: M,
    states: Vec<M::State>,
}

impl<M: Module> AnyModule for Stateful<M> {
    fn begin(&mut self, slot: usize) {
        match self.states.get_mut(slot) {
            Some(state) => *state = M::State::default(),
            None => self.states.resize_with(slot + 1, M::State::default),
        }
    }

    fn process<'p>(
        &mut self,
        at: &mut PacketAt<'_>,
        slot: Option<usize>,
        pieces: &mut dyn Iterator<Item = Piece<'p>>,
    ) -> Act {
        let Self { module, states } = self;
        let mut act = module.process_eth(at);
        let d = at.decoded;
        if act != Act::Pass || !is_right(d) {
            return act;
        }
        let mut none = M::State::default();
        let state = slot.and_then(|slot| states.get_mut(slot)).unwrap_or(&mut none);
        act = module.process_ip(at, state);
        let is_whole = d.ports().is_some() && !d.has(Decoded::FRAGMENT);
        if act == Act::Pass
            && let Some(joined) = at.joined
        {
            let PacketAt { id, packet, context, contexts, .. } = at;
            let (decoded, joined) = (joined.decoded, Some(joined));
            let mut own = PacketAt { id: *id, packet, decoded, context, contexts, joined };
            act = module.process_udp(&mut own, state);
        } else if act == Act::Pass && is_whole {
            act = match d.protocol {
                IpProtocol::UDP => module.process_udp(at, state),
                IpProtocol::TCP => module.process_tcp(at, state),
                _ => Act::Pass,
            };
        }
        // The last fragment of a segment brings its bytes.
        while act == Act::Pass
            && let Some(piece) = pieces.next()
        {
            act = module.process_stream(at, piece, state);
        }
        act
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest module.
    #[derive(Default)]
    struct Plain;

    impl Module for Plain {
        type State = ();
        const NAME: &'static str = "plain";
    }

    #[derive(Default)]
    struct Floor(u32);

    impl Module for Floor {
        type State = ();
        const NAME: &'static str = "floor";
        fn set_up(&mut self, parameters: &Parameters<'_>) -> Result<(), String> {
            self.0 = parameters.get("FLOOR", 5);
            if self.0 > 255 { Err("FLOOR: expected at most 255".into()) } else { Ok(()) }
        }
    }

    #[test]
    fn parameters_have_names_and_bounds() {
        let of = |name: &str, value| vec![(name.to_owned(), value)];
        assert!((ModuleKind::of::<Floor>().make)(&of("FLOOR", 9)).is_ok());
        assert!((ModuleKind::of::<Plain>().make)(&[]).is_ok());
        let error = |made: Result<Box<dyn AnyModule>, String>| made.err().unwrap_or_default();
        let unknown = error((ModuleKind::of::<Floor>().make)(&of("FLOR", 9)));
        assert_eq!(unknown, "unknown parameter `FLOR`: expected FLOOR");
        let none = error((ModuleKind::of::<Plain>().make)(&of("X", 9)));
        assert_eq!(none, "unknown parameter `X`: the module has none");
        let large = error((ModuleKind::of::<Floor>().make)(&of("FLOOR", 256)));
        assert_eq!(large, "FLOOR: expected at most 255");
    }
}
