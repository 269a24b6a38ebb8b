//! Segments of one connection in any order, overlapping or forged: what a side sends is delivered without holes or
//! repetition, each side ends once, and the buffer is empty at the end.
//!
//! The first two bytes choose policy and options. Each record behind them is: flags, side and how the numbers are meant,
//! sequence number (2), acknowledgment (2), length; bytes follow from their place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::tcp::flags::SYN;
use stream::Side;
use stream::tcp::{
    Connection, End, Full, Options, Outcome, Policy, Reassembler, Segment, Sink, SynData, Urgent,
    Want,
};

const BOUND: usize = 16 << 10;

#[derive(Default)]
struct Reader {
    offset: [u64; 2],
    ended: [bool; 2],
    /// Answers "enough" at this offset.
    enough: Option<u64>,
}

impl Reader {
    fn advance(&mut self, side: Side, offset: u64, bytes: u64) {
        let at = side.index();
        assert!(!self.ended[at] && bytes > 0, "something behind the end");
        assert_eq!(offset, self.offset[at]);
        self.offset[at] += bytes;
    }
}

impl Sink for Reader {
    fn data(&mut self, side: Side, offset: u64, bytes: &[u8]) -> Want {
        self.advance(side, offset, bytes.len() as u64);
        match self.enough {
            Some(enough) if self.offset[0] >= 2 * enough => Want::EnoughOfFlow,
            Some(enough) if self.offset[side.index()] >= enough => Want::EnoughOfSide,
            _ => Want::More,
        }
    }

    fn gap(&mut self, side: Side, offset: u64, bytes: u64) {
        self.advance(side, offset, bytes);
    }

    fn end(&mut self, side: Side, offset: u64, _: End) {
        let at = side.index();
        assert!(!std::mem::replace(&mut self.ended[at], true), "a side ends twice");
        assert_eq!(offset, self.offset[at]);
    }
}

fn close(reassembler: &mut Reassembler, connection: &mut Connection, reader: &mut Reader) {
    reassembler.close(connection, reader);
    assert_eq!((reassembler.buffer_bytes_used(), reader.ended), (0, [true; 2]));
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, mut rest)) = bytes.split_first_chunk::<2>() else { return };
    let [policy, choice] = *choice;
    let is = |bit: u8| choice >> bit & 1 != 0;
    let options = Options {
        policy: Policy::NAMES[usize::from(policy & 15) % Policy::NAMES.len()].1,
        buffer_bytes: BOUND,
        buffer_bytes_per_flow: if is(0) { BOUND / 4 } else { BOUND },
        full: if policy & 0x80 != 0 { Full::RefuseNew } else { Full::KeepNearest },
        depth: if is(1) { 1000 } else { u64::MAX },
        midstream: !is(2),
        acknowledged_is_lost: !is(3),
        resynchronise: !is(7),
        reset_in_window: is(4),
        syn_data: [SynData::Ignore, SynData::FastOpen, SynData::Accept]
            [usize::from(policy >> 4) % 3],
        urgent: if is(5) { Urgent::Drop } else { Urgent::Inline },
    };
    let mut reassembler = Reassembler::new(options);
    let enough = is(6).then_some(500);
    let mut reader = Reader { enough, ..Reader::default() };
    let mut connection = Connection::new(Side::A);
    let stream: Vec<u8> = (0..1024u32).map(|at| (at * 7 + at / 256) as u8).collect();
    let mut now_ns = 0;
    while let Some((record, behind)) = rest.split_first_chunk::<7>() {
        rest = behind;
        now_ns += 1_000;
        let [flags, how, s0, s1, a0, a1, len] = *record;
        let side = Side::BOTH[usize::from(how & 1)];
        let number = |high, low| {
            let number = u32::from(u16::from_be_bytes([high, low]));
            // Near 0, near the wrap, or far away.
            match how >> 1 & 3 {
                0 | 1 => number,
                2 => number.wrapping_sub(0x8000),
                _ => number << 16,
            }
        };
        let relative = how & 8 != 0;
        let (mut sequence, mut acknowledgment) = (number(s0, s1), number(a0, a1));
        if relative {
            // In order, so that the fuzzer need not count.
            sequence = connection.next(side).wrapping_add(u32::from(s1));
            acknowledgment = connection.next(side.other()).wrapping_sub(u32::from(a1));
        }
        let from = sequence as usize % 256 + usize::from(how >> 7) * 3; // sometimes other bytes
        let options: &[u8] =
            if flags as u16 & SYN != 0 && how & 16 != 0 { &[3, 3, 7, 34, 2] } else { &[] };
        let segment = Segment {
            sequence,
            acknowledgment,
            flags: flags.into(),
            window: if how & 32 != 0 { 100 } else { u16::MAX },
            urgent_pointer: s1.into(),
            options,
            payload: &stream[from..from + usize::from(len) * if how & 64 != 0 { 2 } else { 1 }],
            // A capture cut it: CWR, which nothing reads, says so.
            missing: if flags & 0x80 != 0 { u16::from(a1) * 7 } else { 0 },
        };
        let outcome = reassembler.segment(&mut connection, side, &segment, now_ns, &mut reader);
        if outcome == Outcome::Restart {
            close(&mut reassembler, &mut connection, &mut reader);
            (connection, reader) = (Connection::new(side), Reader { enough, ..Reader::default() });
            let again = reassembler.segment(&mut connection, side, &segment, now_ns, &mut reader);
            assert_ne!(again, Outcome::Restart);
        }
        assert!(reassembler.buffer_bytes_used() <= BOUND);
        // Behind the end of a side its numbers are followed without it.
        let open = Side::BOTH.into_iter().filter(|side| !reader.ended[side.index()]);
        open.for_each(|side| assert_eq!(connection.offset(side), reader.offset[side.index()]));
    }
    close(&mut reassembler, &mut connection, &mut reader);
});
