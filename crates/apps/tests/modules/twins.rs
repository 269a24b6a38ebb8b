//! The sources of the tests as Rust modules.

use automata::{Automaton, Pattern, Patterns, State};
use control::module_patterns::ModulePattern;

use controlplane::module::{Act, MODULE_DROP, Module, PacketAt, Parameters, Piece};

/// `mix.k`.
#[derive(Default)]
pub(crate) struct Mix {
    at: usize,
    factor: u32,
}

#[derive(Default)]
pub(crate) struct Mixed {
    packets: u32,
    hash: u32,
}

fn hash_of(before: u32, piece: &Piece<'_>, seed: u32) -> u32 {
    let begin = (before ^ piece.offset as u32 ^ u32::from(piece.is_reply) << 31 ^ seed)
        .wrapping_mul(0x9e37_79b1);
    piece.bytes.iter().fold(begin, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(16_777_619))
}

impl Mix {
    fn count(&self, own: &mut Mixed) -> Act {
        own.packets += 1;
        match own.packets.wrapping_mul(self.factor) % 101 {
            7 => Act::Ignore,
            9 => Act::Drop(MODULE_DROP),
            11 => Act::Dump,
            _ => Act::Pass,
        }
    }
}

impl Module for Mix {
    type State = Mixed;
    const NAME: &'static str = "mix";

    fn set_up(&mut self, parameters: &Parameters<'_>) -> Result<(), String> {
        (self.at, self.factor) = (parameters.get("AT", 0) as usize, parameters.get("FACTOR", 1));
        Ok(())
    }

    fn process_udp(&mut self, _: &mut PacketAt<'_>, own: &mut Mixed) -> Act {
        self.count(own)
    }

    fn process_tcp(&mut self, _: &mut PacketAt<'_>, own: &mut Mixed) -> Act {
        self.count(own)
    }

    fn process_stream(&mut self, at: &mut PacketAt<'_>, piece: Piece<'_>, own: &mut Mixed) -> Act {
        own.hash = hash_of(own.hash, &piece, 0);
        at.packet.data_mut()[self.at..self.at + 4].copy_from_slice(&own.hash.to_le_bytes());
        Act::Pass
    }
}

/// `judge.k`.
#[derive(Default)]
pub(crate) struct Judge(u32);

impl Module for Judge {
    type State = u32;
    const NAME: &'static str = "judge";

    fn set_up(&mut self, parameters: &Parameters<'_>) -> Result<(), String> {
        self.0 = parameters.get("FACTOR", 1);
        Ok(())
    }

    fn process_stream(&mut self, _: &mut PacketAt<'_>, piece: Piece<'_>, hash: &mut u32) -> Act {
        *hash = hash_of(*hash, &piece, self.0);
        match *hash >> 28 {
            5 => Act::Drop(MODULE_DROP),
            6 => Act::Dump,
            _ => Act::Pass,
        }
    }
}

/// `turn.k`.
#[derive(Default)]
pub(crate) struct Turn {
    at: usize,
    factor: u32,
}

impl Module for Turn {
    type State = ();
    const NAME: &'static str = "turn";

    fn set_up(&mut self, parameters: &Parameters<'_>) -> Result<(), String> {
        (self.at, self.factor) = (parameters.get("AT", 0) as usize, parameters.get("FACTOR", 1));
        Ok(())
    }

    fn process_udp(&mut self, at: &mut PacketAt<'_>, (): &mut ()) -> Act {
        let (l4, end) = (usize::from(at.decoded.l4_offset), at.decoded.l3_end());
        let joined = at.joined.filter(|_| at.decoded.protocol == packet::IpProtocol::UDP);
        let frame = joined.map_or(at.packet.data(), |joined| joined.frame);
        let begin = (frame.len() as u32).wrapping_mul(self.factor) ^ u32::from(at.decoded.ttl);
        let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(16_777_619);
        let hash = frame[l4..end].iter().fold(begin, step);
        // What came in fragments stays as it is.
        if joined.is_none() {
            at.packet.data_mut()[self.at] = hash as u8;
        }
        match hash >> 28 {
            5 => Act::Drop(MODULE_DROP),
            6 => Act::Dump,
            _ => Act::Pass,
        }
    }

    fn process_tcp(&mut self, at: &mut PacketAt<'_>, own: &mut ()) -> Act {
        self.process_udp(at, own)
    }
}

/// The patterns of `search.k`: so short that random bytes have them, some of them within others, some with letters of either
/// case.
pub(crate) fn patterns() -> Vec<ModulePattern> {
    let mut text = String::from("a\n(?i)B\nAB\n(?i)ab\nb\n\\x07\\x07\\x07\n");
    for first in 0u8..12 {
        for second in 0u8..12 {
            text += &format!("\\x{:02x}\\x{:02x}\n", first * 21, second * 21);
        }
    }
    control::module_patterns::read(text.as_bytes()).expect("patterns")
}

/// `search.k`.
pub(crate) struct Search(Automaton);

impl Default for Search {
    fn default() -> Self {
        let mut made = Patterns::default();
        for own in patterns() {
            let pattern = Pattern::new(&own.bytes);
            made.insert(if own.is_nocase { pattern.nocase() } else { pattern }).expect("a pattern");
        }
        Self(Automaton::new(&made).expect("an automaton"))
    }
}

#[derive(Default)]
pub(crate) struct Searched {
    sides: [Option<State>; 2],
    hash: u32,
}

impl Search {
    fn search(&self, from: Option<State>, piece: &Piece<'_>, hash: &mut u32) -> State {
        let from = from.unwrap_or(self.0.anywhere());
        self.0.scan(from, piece.bytes, piece.offset, |found| {
            *hash = (*hash ^ found.pattern << 16 ^ found.end as u32).wrapping_mul(16_777_619);
        })
    }
}

fn verdict(hash: u32) -> Act {
    match hash >> 29 {
        5 => Act::Drop(MODULE_DROP),
        6 => Act::Dump,
        _ => Act::Pass,
    }
}

impl Module for Search {
    type State = Searched;
    const NAME: &'static str = "search";

    fn process_udp(&mut self, at: &mut PacketAt<'_>, _: &mut Searched) -> Act {
        let mut hash = 7;
        let piece = Piece { is_reply: false, offset: 0, bytes: at.payload() };
        self.search(None, &piece, &mut hash);
        verdict(hash)
    }

    fn process_stream(
        &mut self,
        _: &mut PacketAt<'_>,
        piece: Piece<'_>,
        own: &mut Searched,
    ) -> Act {
        let side = usize::from(piece.is_reply);
        let from = own.sides[side];
        own.sides[side] = Some(self.search(from, &piece, &mut own.hash));
        verdict(own.hash)
    }
}

/// Puts a VLAN tag into each frame, so that all behind the addresses moves.
#[derive(Default)]
pub(crate) struct Tag;

impl Module for Tag {
    type State = ();
    const NAME: &'static str = "tag";

    fn process_eth(&mut self, at: &mut PacketAt<'_>) -> Act {
        if at.packet.push_front(4) {
            let frame = at.packet.data_mut();
            frame.copy_within(4..16, 0);
            frame[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
        }
        Act::Pass
    }
}

/// Lets all pass.
#[derive(Default)]
pub(crate) struct Still;

impl Module for Still {
    type State = ();
    const NAME: &'static str = "still";

    fn process_eth(&mut self, _: &mut PacketAt<'_>) -> Act {
        Act::Pass
    }
}
