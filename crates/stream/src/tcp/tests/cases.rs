//! Connections by hand. A line is a segment: side, flags (`.` is ACK), sequence number and acknowledgment relative to the
//! initial ones (SYN is 0, the first byte 1), data, and fields by name; `close` ends the connection. `!` before a line
//! expects that the segment is ignored, `?` that it passes and its data is no part of a stream, `*` that it begins another
//! connection.

use packet::tcp::flags::{ACK, FIN, RST, SYN, URG};

use super::super::{
    Counters, End, Event, Full, Options, Outcome, Policy, Segment, SynData, Urgent,
};
use super::{Bench, Recorder};
use crate::key::Side::{self, A, B};
use crate::record::{SideRecord, TcpState};

const OPEN: &str = "A S 0 0; B SA 0 1; A . 1 1; ";

struct Case {
    name: &'static str,
    options: Options,
    /// After a handshake, if it does not begin with SYN or `-`.
    script: &'static str,
    /// What A and B sent; `-` is a byte of a gap, `|` the end by FIN, `x` by RST, `~` for another reason.
    streams: [&'static str; 2],
    state: TcpState,
    events: &'static [Event],
}

fn number(text: &str) -> u32 {
    text.parse::<i64>().expect("a number") as u32
}

pub(super) fn play(bench: &mut Bench, script: &str) {
    for line in script.split(';').map(str::trim).filter(|line| !line.is_empty()) {
        if line == "close" {
            bench.close();
            continue;
        }
        let (expected, line) = match line.as_bytes()[0] {
            b'!' => (Outcome::Ignored, &line[1..]),
            b'*' => (Outcome::Restart, &line[1..]),
            b'?' => (Outcome::Unread, &line[1..]),
            _ => (Outcome::Accepted, line),
        };
        let mut words = line.split_whitespace();
        let mut next = || words.next().expect("a word");
        let side = if next() == "A" { A } else { B };
        let flags = next().chars().map(|letter| match letter {
            'S' => SYN,
            'A' | '.' => ACK,
            'F' => FIN,
            'R' => RST,
            'U' => URG,
            _ => 0,
        });
        let flags = flags.fold(0, |all, flag| all | flag);
        let sequence = bench.initial[side.index()].wrapping_add(number(next()));
        let acknowledgment = bench.initial[side.other().index()].wrapping_add(number(next()));
        let mut segment =
            Segment { sequence, acknowledgment, flags, window: 1000, ..Segment::default() };
        let mut options = Vec::new();
        for word in words {
            match word.split_once('=') {
                Some(("window", value)) => segment.window = number(value) as u16,
                Some(("urgent", value)) => segment.urgent_pointer = number(value) as u16,
                Some(("scale", value)) => options.extend([3, 3, number(value) as u8]),
                Some(("fast", _)) => options.extend([34, 2]),
                _ => segment.payload = word.as_bytes(),
            }
        }
        segment.options = &options;
        assert_eq!(bench.send(side, segment), expected, "{line}");
    }
}

pub(super) fn show(sink: &Recorder, side: Side) -> String {
    let end = match sink.end[side.index()] {
        None => "",
        Some(End::Fin) => "|",
        Some(End::Reset) => "x",
        Some(End::Depth | End::Enough | End::Incomplete) => "~",
    };
    String::from_utf8(sink.bytes(side)).expect("text") + end
}

fn check(cases: &[Case]) {
    for case in cases {
        let initials = [[1_000, 5_000], [u32::MAX, u32::MAX - 3], [u32::MAX - 5, 0]];
        for initial in initials {
            let mut bench = Bench { initial, ..Bench::new(case.options) };
            let script = match case.script.strip_prefix('-') {
                Some(script) => script.to_string(),
                None => OPEN.to_string() + case.script,
            };
            println!("{}: {script}", case.name);
            play(&mut bench, &script);
            let streams = Side::BOTH.map(|side| show(&bench.sink, side));
            let events: Vec<_> = bench.sink.events.iter().map(|(_, event)| *event).collect();
            assert_eq!(streams, case.streams, "{}", case.name);
            assert_eq!(bench.connection.state(), case.state, "{}", case.name);
            assert_eq!(events, case.events, "{}", case.name);
            bench.close();
        }
    }
}

macro_rules! cases {
    ($($name:literal $(with $options:expr)?; $script:literal => $a:literal $b:literal $state:ident [$($event:ident)*])*) => {
        check(&[$(Case {
            name: $name,
            options: { let options = Options::default(); $(let options = Options { ..$options(options) };)? options },
            script: $script,
            streams: [$a, $b],
            state: TcpState::$state,
            events: &[$(Event::$event),*],
        }),*])
    };
}

#[test]
fn handshakes() {
    let firewall = |options| Options { resynchronise: false, ..options };
    cases! {
        "usual"; "A . 1 1 hi; B . 1 3 ho" => "hi" "ho" Established []
        "only SYN"; "- A S 0 0; A S 0 0" => "" "" SynSent []
        "not acknowledged"; "- A S 0 0; B SA 0 1; B SA 0 1" => "" "" SynReceived []
        "SYN-ACK with a wrong number"; "- A S 0 0; !B SA 0 2; B SA 0 1; A . 1 1" => "" "" Established [AckInvalid]
        "two SYN-ACKs that differ"; "- A S 0 0; B SA 0 1; !B SA 70000 1; A . 1 1; B . 1 1 x" => "" "x" Established [SynConflict]
        "client acknowledges what was never sent"; "- A S 0 0; B SA 0 1; !A . 1 -5; A . 1 1 x" => "x" "" Established [AckInvalid]
        "server sends before the ACK is seen"; "- A S 0 0; B SA 0 1; B . 1 1 banner; A . 1 1; A . 1 7" => "" "banner" Established []
        "SYN again"; "- A S 0 0; B SA 0 1; A S 0 0; B SA 0 1; A . 1 1 x" => "x" "" Established []
        "another SYN before the answer"; "- A S 0 0; A S 9 0" => "" "" SynSent [SynConflict]
        "another SYN before the answer, which is to the first one"; "- A S 0 0; A S 9 0; B SA 0 1; A . 1 1 x" => "x" "" Established [SynConflict]
        "another SYN before the answer, which is to it"; "- A S 0 0; A S 9 0; *B SA 0 10" => "" "" SynSent [SynConflict]
        "another SYN, refused"; "- A S 0 0; A S 9 0; B RA 0 10" => "x" "x" Closed [SynConflict]
        "another SYN, refused with a wrong number"; "- A S 0 0; A S 9 0; !B RA 0 11" => "" "" SynSent [SynConflict ResetOutOfWindow]
        "SYN again, with data"; "- A S 0 0; ?A S 0 0 x; B SA 0 1; ?A S 0 0 x; A . 1 1 y" => "y" "" Established []
        "refused"; "- A S 0 0; B RA 0 1" => "x" "x" Closed []
        "refused with a wrong number"; "- A S 0 0; !B RA 0 2" => "" "" SynSent [ResetOutOfWindow]
        "simultaneous open"; "- A S 0 0; B S 0 0; A SA 0 1; B SA 0 1; A . 1 1 x; B . 1 2 y" => "x" "y" Established [SimultaneousOpen]
        "split handshake"; "- A S 0 0; B S 0 0; A SA 0 1; B . 1 1; A . 1 1 x; B . 1 2 y" => "x" "y" Established [SimultaneousOpen]
        "without ACK"; "!A P 1 1 x; A . 1 1 y" => "y" "" Established [NoFlags]
        "in a firewall, data before SYN-ACK" with firewall; "- A S 0 0; !A . 1 1 x; B . 70 90; B SA 0 1; A . 1 1 y" => "y" "" Established [AckInvalid AckInvalid]
        "in a firewall, SYN is challenged, and the client resets that connection" with firewall; "- A S 0 0; B . 70 90; A R 90 0; !A R 91 0; A S 0 0; B SA 0 1; A . 1 1 y" => "y" "" Established [AckInvalid ResetInWindow ResetOutOfWindow]
        "in a firewall, data before SYN-ACK of the server" with firewall; "- A S 0 0; ?B . 70 90 x" => "" "" SynSent [AckInvalid]
    }
}

#[test]
fn data_on_syn() {
    let fast = |options| Options { syn_data: SynData::FastOpen, ..options };
    let none = |options| Options { syn_data: SynData::Ignore, ..options };
    cases! {
        "fast open"; "- A S 0 0 get fast=1; B SA 0 4; A . 4 1 x; B . 1 5 yes" => "getx" "yes" Established [FastOpen]
        "fast open refused"; "- A S 0 0 get fast=1; B SA 0 1; A . 1 1 new" => "new" "" Established [FastOpen]
        "fast open, SYN-ACK not captured"; "- A S 0 0 get fast=1; A . 4 1 x" => "getx" "" Established [FastOpen]
        "fast open refused, SYN-ACK not captured"; "- A S 0 0 get fast=1; A . 1 1 put" => "put" "" Established [FastOpen]
        "fast open and the answer with data"; "- A S 0 0 get fast=1; B SA 0 4 yes; A . 4 4" => "get" "yes" Established [FastOpen FastOpen]
        "fast open, more before the answer is acknowledged"; "- A S 0 0 get fast=1; B SA 0 4; B . 1 4 yes; A . 4 4" => "get" "yes" Established [FastOpen]
        "fast open unanswered"; "- A S 0 0 get fast=1; close" => "~" "~" SynSent [FastOpen]
        "without the option"; "- A S 0 0 get; B SA 0 1; A . 1 1 get" => "get" "" Established [DataOnSyn]
        "without the option, accepted"; "- A S 0 0 get; B SA 0 4; A . 4 1" => "get" "" Established [DataOnSyn]
        "without the option, not taken" with fast; "- A S 0 0 get; B SA 0 4; A . 4 1" => "---" "" Established [DataOnSyn AcknowledgedLost]
        "banner with SYN-ACK"; "- A S 0 0; B SA 0 1 hello; A . 1 6; B . 6 1 x" => "" "hellox" Established [DataOnSyn]
        "banner with SYN-ACK, not acknowledged yet"; "- A S 0 0; B SA 0 1 hello" => "" "" SynReceived [DataOnSyn]
        "banner with SYN-ACK refused"; "- A S 0 0; B SA 0 1 hello; A . 1 1; B . 1 1 other" => "" "other" Established [DataOnSyn]
        "banner with SYN-ACK, acknowledged with data"; "- A S 0 0; B SA 0 1 hello; A . 1 6 get" => "get" "hello" Established [DataOnSyn]
        "banner with SYN-ACK, and FIN"; "- A S 0 0; B SA 0 1 hello; A . 1 6; B FA 6 1; A FA 1 7; B . 7 2" => "|" "hello|" TimeWait [DataOnSyn]
        "ignored" with none; "- A S 0 0 get fast=1; B SA 0 1; A . 1 1 put" => "put" "" Established [FastOpen]
        "ignored, but acknowledged" with none; "- A S 0 0 get fast=1; B SA 0 4; A . 4 1 x" => "---x" "" Established [FastOpen AcknowledgedLost]
    }
}

#[test]
fn order() {
    let late = |options| Options { acknowledged_is_lost: false, ..options };
    cases! {
        "two swapped"; "A . 3 1 cd; A . 1 1 ab; A . 5 1 ef" => "abcdef" "" Established []
        "backwards"; "A . 5 1 e; A . 4 1 d; A . 3 1 c; A . 2 1 b; A . 1 1 a" => "abcde" "" Established []
        "both directions"; "B . 2 1 y; A . 2 1 b; A . 1 1 a; B . 1 1 x" => "ab" "xy" Established []
        "twice"; "A . 1 1 ab; A . 1 1 ab; A . 1 1 abc" => "abc" "" Established [Retransmission]
        "twice in the buffer"; "A . 3 1 c; A . 3 1 c; A . 1 1 ab" => "abc" "" Established [Retransmission]
        "over several"; "A . 2 1 b; A . 4 1 d; A . 1 1 abcde" => "abcde" "" Established []
        "hole at the end"; "A . 2 1 b; A . 4 1 d; close" => "-b-d~" "~" Established []
        "hole acknowledged"; "A . 1 1 a; A . 3 1 c; B . 1 4; A . 4 1 d" => "a-cd" "" Established [AcknowledgedLost]
        "hole acknowledged in part"; "A . 4 1 d; B . 1 3; A . 3 1 c" => "--cd" "" Established [AcknowledgedLost]
        "late after its gap"; "A . 2 1 b; B . 1 3; A . 1 1 a" => "-b" "" Established [AcknowledgedLost Retransmission]
        "hole acknowledged, kept" with late; "A . 2 1 b; B . 1 3; A . 1 1 a" => "ab" "" Established []
        "other bytes later"; "A . 1 1 ab; A . 1 1 xy; B . 1 3" => "ab" "" Established [Retransmission]
        "a probe of the last byte"; "A . 1 1 ab; B . 1 3; A . 2 1 z; A . 2 1; B . 1 3; A . 3 1 c" => "abc" "" Established []
        "a probe of a closed window"; "A . 1 1 a; B . 1 2 window=0; A . 2 1 b; A . 2 1 b; B . 1 3 window=9; A . 3 1 c" => "abc" "" Established [Retransmission]
    }
    let mut bench = Bench::open(Options::default());
    play(
        &mut bench,
        "A . 1 1 ab; B . 1 3; A . 2 1 z; A . 2 1; A . 1 1 ab; A . 5 1 ef; A . 4 1 de; A . 5 1 e; A . 3 1 c",
    );
    let mut record = SideRecord::default();
    bench.connection.report(A, &mut record);
    let found = [record.retransmissions, record.out_of_order, record.overlaps, record.conflicts];
    assert_eq!((found, bench.connection.keep_alives(A)), ([2, 2, 1, 0], 2));
    assert_eq!((record.stream_bytes, record.gaps, record.gap_bytes), (6, 0, 0));
}

#[test]
fn joined_in_the_middle() {
    let never = |options| Options { midstream: false, ..options };
    cases! {
        "data first"; "- A . 100 200 ab; B . 200 102 xy; A . 102 202 c" => "abc" "xy" Established [JoinedMidstream]
        "acknowledgment first"; "- A . 100 200; B . 200 100 xy; A . 100 202" => "" "xy" Established [JoinedMidstream]
        "other side behind"; "- A . 100 200; B . 198 100 wxyz; A . 100 202" => "" "wxyz" Established [JoinedMidstream]
        "other side ahead"; "- A . 100 200; B . 202 100 yz; B . 200 100 wx" => "" "wxyz" Established [JoinedMidstream]
        "keep-alive first"; "- A . 100 200; B . 199 100 q; B . 200 100 x" => "" "x" Established [JoinedMidstream]
        "one direction"; "- A . 100 200 ab; A . 102 250 cd; A . 104 300 ef; close" => "abcdef~" "~" Established [JoinedMidstream]
        "one direction after SYN"; "- A S 0 0; A . 1 1 ab; A . 4 90 d; A . 3 90 c" => "abcd" "" Established []
        "one direction of the server"; "- B SA 0 1; B . 1 1 xy; B . 3 50 z" => "" "xyz" Established [JoinedMidstream]
        "SYN-ACK first"; "- B SA 0 1; A . 1 1 ab; B . 1 3 x" => "ab" "x" Established [JoinedMidstream]
        "SYN-ACK after its ACK"; "- A S 0 0; A . 1 1 ab; B SA 0 1; B . 1 3 x" => "ab" "x" Established []
        "FIN first"; "- A FA 100 200; B FA 200 101; A . 101 201" => "|" "|" TimeWait [JoinedMidstream]
        "RST first"; "- A R 100 0" => "x" "x" Closed []
        "not allowed" with never; "- !A . 100 200 ab; !B SA 0 1; A S 0 0" => "" "" SynSent []
    }
}

#[test]
fn ends() {
    let depth = |options| Options { depth: 3, ..options };
    let in_window = |options| Options { reset_in_window: true, ..options };
    cases! {
        "client first"; "A FA 1 1; B . 1 2" => "|" "" FinWait2 []
        "server first"; "B FA 1 1; A . 1 2; A . 1 2 ab" => "ab" "|" CloseWait []
        "not acknowledged"; "A FA 1 1" => "|" "" FinWait1 []
        "both"; "A FA 1 1; B FA 1 2; A . 2 2" => "|" "|" TimeWait []
        "both, not acknowledged"; "A FA 1 1; B FA 1 2" => "|" "|" LastAck []
        "at once"; "A FA 1 1; B FA 1 1; A . 2 2; B . 2 2" => "|" "|" TimeWait []
        "with data"; "A FA 1 1 ab; B FA 1 4 xy" => "ab|" "xy|" LastAck []
        "before its data"; "A FA 3 1; A . 1 1 ab; B . 1 4" => "ab|" "" FinWait2 []
        "with data, before its data"; "A FA 2 1 b; A . 1 1 a" => "ab|" "" FinWait1 []
        "hole before it"; "A FA 3 1 c; close" => "--c|" "~" FinWait1 []
        "hole before it acknowledged"; "A FA 3 1; B . 1 4" => "--|" "" FinWait2 [AcknowledgedLost]
        "again"; "A FA 1 1 a; A FA 1 1 a; A FA 2 1; B . 1 3; A FA 2 1" => "a|" "" FinWait2 [Retransmission]
        "at another place"; "A . 1 1 abc; A FA 3 1; A FA 4 1; A FA 5 1" => "abc|" "" FinWait1 [FinConflict FinConflict]
        "data behind"; "A FA 2 1; ?A . 1 1 ab; ?A . 2 1 b; ?A . 3 1 c" => "a|" "" FinWait1 [DataAfterFin DataAfterFin]
        "data behind, before"; "A . 3 1 cd; A FA 2 1; A . 1 1 a" => "a|" "" FinWait1 [DataAfterFin]
        "acknowledgments behind"; "A FA 1 1; B . 1 2 xy; A . 2 3; B . 3 2 z; A . 2 4" => "|" "xyz" FinWait2 []
        "reset"; "A . 1 1 ab; A R 3 0; ?A . 3 1 c; A . 3 1; !A . 900000 1 c" => "abx" "x" Closed [AfterReset AfterReset AfterReset]
        "reset again" ; "A . 1 1 ab; B R 1 0; A . 1 1; B R 1 0; B R 1 0; B R 9 0; !B R 1001 0; !B R 0 0; A R 3 0" => "abx" "x" Closed [AfterReset]
        "refused again"; "- A S 0 0; B RA 0 1; B RA 0 1; !B RA 0 2; !B R 0 0" => "x" "x" Closed []
        "reset, and data of the other end"; "B R 1 0; ?A . 1 1 c; ?B . 1 1 d; !A P 1 1 c" => "x" "x" Closed [AfterReset AfterReset AfterReset]
        "reset with a hole"; "A . 2 1 b; B R 1 0" => "-bx" "x" Closed []
        "reset with what was acknowledged"; "A . 1 1 ab; A . 3 1 cd; B . 1 3; A R 3 0; A . 5 1 e" => "abcde" "" Established [ResetInWindow]
        "reset before what came last"; "A . 1 1 hello; !A R 0 0; A R 1 0; B . 1 6; !A R 1 0; A . 6 1 evil; A R 10 0" => "helloevilx" "x" Closed [ResetOutOfWindow ResetInWindow ResetOutOfWindow]
        "reset in the window"; "A R 9 0; A . 1 1 x" => "x" "" Established [ResetInWindow]
        "reset in the window, by option" with in_window; "A R 9 0" => "x" "x" Closed []
        "reset outside of the window" with in_window; "!A R 1001 0; !A R 0 0" => "" "" Established [ResetOutOfWindow ResetOutOfWindow]
        "reset after FIN"; "A FA 1 1; A R 2 0" => "|" "x" Closed []
        "depth" with depth; "A . 1 1 ab; A . 3 1 cd; A . 5 1 e; B . 1 6; B . 1 6 xyz; B FA 4 6" => "abc~" "xyz|" CloseWait []
        "depth in the buffer" with depth; "A . 3 1 cd; A . 6 1 fg; A . 1 1 ab; A . 5 1 e" => "abc~" "" Established []
        "depth and holes" with depth; "A . 1 1 abcd; A . 9 1 i; A FA 10 1; B . 1 11" => "abc~" "" FinWait2 []
    }
}

#[test]
fn reuse() {
    let firewall = |options| Options { resynchronise: false, ..options };
    cases! {
        "after RST"; "A R 1 0; *A S 0 0; *B S 7 0" => "x" "x" Closed []
        "after FIN of both"; "A FA 1 1; B FA 1 2; A . 2 2; A S 0 0; *A S 9 0" => "|" "|" TimeWait []
        "before the last ACK"; "A FA 1 1; B FA 1 2; A S 9 0; *B SA 70 10" => "|" "|" LastAck [SynConflict]
        "of an open one, within the window"; "A S 9 0; A . 1 1 x" => "x" "" Established [SynConflict]
        "of an open one, before"; "A S -9 0; A . 1 1 x" => "x" "" Established [SynConflict]
        "of an open one, beyond the window"; "A S 999999 0; A . 1 1 x" => "x" "" Established [SynConflict]
        "of an open one, answered"; "A S 9 0; *B SA 70 10" => "" "" Established [SynConflict]
        "of an open one, beyond the window, answered"; "A S 999999 0; *B SA 70000000 1000000" => "" "" Established [SynConflict]
        "of an open one, answered with data in part"; "?A S 9 0 get fast=1; *B SA 70 12" => "" "" Established [SynConflict]
        "of an open one, another number acknowledged"; "A S 9 0; !B SA 70 11; !B SA 70 9" => "" "" Established [SynConflict SynConflict SynConflict]
        "the SYN-ACK of before again"; "A S 9 0; B SA 0 1; *B SA 70 10" => "" "" Established [SynConflict]
        "answered when the old one went on"; "A S 9 0; A . 1 1 x; !B SA 70 10" => "x" "" Established [SynConflict SynConflict]
        "challenged, then reset"; "B . 1 1 y; A S -900 0; B . 2 1; A R 1 0; *A S -900 0" => "x" "yx" Closed [SynConflict]
        "challenged, and gone on"; "A S 900 0; B . 1 1; A . 1 1 x; B . 1 2" => "x" "" Established [SynConflict]
        "twice, the second answered"; "A S 9 0; A S 800 0; !B SA 70 10; *B SA 70 801" => "" "" Established [SynConflict SynConflict SynConflict]
        "its SYN-ACK was not captured"; "A S 900000 0; !A . 900001 70; !A . 900001 70 x; *B . 70 900002" => "" "" Established [SynConflict OutOfWindow OutOfWindow]
        "data behind it, challenged"; "A S 500000000 0; B . 1 1; !A . 500000001 1 junk; B . 1 1; A . 1 1 x" => "x" "" Established [SynConflict OutOfWindow]
        "data behind it, of the server"; "B S 500000000 0; A . 1 1; !B . 500000001 1 junk; A . 1 1; B . 1 1 x" => "" "x" Established [SynConflict OutOfWindow]
        "its SYN-ACK was not captured, and nothing of the other end"; "- A S 0 0; A . 1 1 ab; A S 900000 0; *A . 900001 70" => "ab" "" Established [SynConflict]
        "in a firewall, its SYN-ACK was not seen" with firewall; "A S 900000 0; !A . 900001 70" => "" "" Established [SynConflict OutOfWindow]
        "in a firewall, SYN of the server" with firewall; "!B S 900000 0" => "" "" Established [SynConflict]
        "SYN of before again"; "A . 1 1 x; A S 0 0; B SA 0 1; A . 2 1 y" => "xy" "" Established []
        "SYN of the server"; "B S 9 0" => "" "" Established [SynConflict]
        "another SYN-ACK"; "!B SA 9 1" => "" "" Established [SynConflict]
        "another SYN-ACK, one direction only"; "- B SA 0 1; B . 1 1 xy; B SA 0 1; *B SA 900000 500" => "" "xy" Established [JoinedMidstream]
        "another SYN-ACK, and SYN of the other end"; "- B SA 0 1; A S 7 0; !B SA 900000 500" => "" "" SynReceived [JoinedMidstream SynConflict SynConflict]
        "in a firewall, another SYN-ACK, one direction only" with firewall; "- B SA 0 1; B . 1 1 xy; !B SA 900000 500" => "" "xy" Established [JoinedMidstream SynConflict]
    }
}

/// The connection that a SYN began which came while the one before was open: both have their own bytes, and windows are scaled.
#[test]
fn a_port_used_again() {
    let before = "A . 1 1 first; A S 700001 0 scale=2; ";
    for answer in
        ["B SA 90000 700002 scale=3; A . 700002 90001 window=100", "B . 90001 700002 window=100"]
    {
        let mut bench = Bench::open(Options::default());
        play(&mut bench, before);
        let (head, rest) = answer.split_once("; ").unwrap_or((answer, ""));
        play(&mut bench, &format!("*{head}"));
        let mut text = String::new();
        let (number, flags) = match head.contains("SA") {
            true => (90_000, SYN | ACK),
            false => (90_001, ACK),
        };
        let sequence = bench.initial[1] + number;
        let known = bench.connection.again(&super::segment(sequence, 0, flags, b""));
        assert_eq!(known.client(), Some(A));
        let syn = super::segment(sequence, 0, SYN, b"");
        assert_eq!(bench.connection.again(&syn).client(), None, "SYN says all of its connection");
        bench.close();
        bench.connection = super::super::Connection::new(B);
        bench.connection.begin_again(&known);
        bench.sink = Recorder::default();
        text.extend([head, "; ", rest, "; A . 700002 90001 second; B . 90001 700008 yes"]);
        play(&mut bench, &text);
        assert_eq!(bench.connection.state(), TcpState::Established);
        assert_eq!(
            (bench.sink.bytes(A), bench.sink.bytes(B)),
            (b"second".to_vec(), b"yes".to_vec())
        );
        assert_eq!(bench.connection.window(A), 4_000);
        bench.close();
    }
}

#[test]
fn windows() {
    cases! {
        "beyond"; "!A . 200001 1 x; A . 1 1 a" => "a" "" Established [OutOfWindow]
        "far behind"; "!A . -1900000000 1 x; A . 1 1 a" => "a" "" Established [OutOfWindow]
        "scaled by one side only"; "- A S 0 0; B SA 0 1 scale=14; A . 1 1; !A . 200001 1 x" => "" "" Established [OutOfWindow]
        "not next, and beyond a window that was larger"; "B . 1 1 window=4; A . 3 1 cd; A . 5 1 ef; A . 1 1 ab" => "abcdef" "" Established []
        "not next, and beyond what is announced"; "- A S 0 0; B SA 0 1 window=4; A . 1 1; A . 3 1 cd; A . 5 1 ef; A . 1 1 ab" => "abcdef" "" Established [BeyondWindow]
        "beyond what is announced, next"; "B . 1 1 window=0; A . 1 1 ab; A . 3 1 cd" => "abcd" "" Established []
        "acknowledgment of what was never sent"; "!B . 1 900001; B . 1 5 y; A . 1 2 abcd; A . 5 2 ef; B . 2 7" => "abcdef" "y" Established [AckInvalid AckUnseen]
        "the same, said by who sent it"; "B . 1 9; A . 1 1 abcd; B . 1 5; close" => "abcd~" "~" Established [AckUnseen AckInvalid]
        "the same, far ahead"; "B . 1 60001; A . 5 1 ef; B . 1 1; A . 1 1 abcd; B . 1 7" => "abcdef" "" Established [AckUnseen AckInvalid]
        "the same, and reset"; "B . 1 9; A R 1 0" => "x" "x" Closed [AckUnseen AckInvalid]
        "acknowledgment of what was not captured"; "B . 1 5; A . 5 1 ef; A . 7 1 gh" => "----efgh" "" Established [AckUnseen AcknowledgedLost]
        "the same, and more is lost"; "B . 1 5; A . 8 1 hi; B . 1 10" => "-------hi" "" Established [AckUnseen AcknowledgedLost AcknowledgedLost]
        "the same, and FIN"; "B . 1 5; A FA 5 1; B . 1 6" => "----|" "" FinWait2 [AckUnseen AcknowledgedLost]
        "the same, and reset behind it"; "B . 1 5; A R 5 0" => "----x" "x" Closed [AckUnseen AcknowledgedLost]
        "the same, and nothing more"; "B . 1 5; close" => "----~" "~" Established [AckUnseen]
        "acknowledgment beyond"; "!B . 1 900001; B . 1 1 y" => "" "y" Established [AckInvalid]
        "FIN beyond"; "!A FA 900001 1; A . 1 1 a" => "a" "" Established [OutOfWindow]
        "an old acknowledgment"; "B . 1 1 y; A . 1 2; ?A . 1 -999 bad; A . 1 -998 ok" => "ok" "y" Established [AckInvalid]
    }
    let firewall = |options| Options { resynchronise: false, ..options };
    cases! {
        "in a firewall, acknowledgment of what was not sent" with firewall; "B . 1 1 xy; !A . 1 4 a; A . 1 3 b" => "b" "xy" Established [AckInvalid]
        "in a firewall, of what is behind a hole" with firewall; "B . 3 1 yz; !A . 1 6; A . 1 5 b; B . 1 1 wx" => "b" "--yz" Established [AckInvalid AcknowledgedLost Retransmission]
        "in a firewall, of FIN behind a hole" with firewall; "B FA 3 1; A . 1 4 b; !A . 2 5" => "b" "--|" CloseWait [AcknowledgedLost AckInvalid]
        "in a firewall, an old acknowledgment" with firewall; "B . 1 1 0123456789; A . 1 11 window=4; ?A . 1 -900000 bad; A . 1 7 ok" => "ok" "0123456789" Established [AckInvalid]
        "in a firewall, beyond what is announced" with firewall; "- A S 0 0; B SA 0 1 window=4; A . 1 1; A . 3 1 cd; ?A . 5 1 ef; A . 1 1 ab; B . 1 5 window=2; A . 5 1 ef" => "abcdef" "" Established [BeyondWindow]
        "in a firewall, joined in the middle" with firewall; "- A . 100 200; B . 200 100 xy; A . 100 209 z" => "z" "xy-------" Established [JoinedMidstream AcknowledgedLost]
    }
}

/// Acknowledgments that are missing from a capture do not stop a stream.
#[test]
fn acknowledgments_not_captured() {
    let mut bench = Bench::open(Options::default());
    let bytes = vec![b'x'; 50_000];
    for round in 0..20 {
        // Each pair of segments is swapped.
        let _ = bench.data(A, (round ^ 1) * 50_000, 0, &bytes);
    }
    assert_eq!(bench.sink.bytes(A).len(), 1_000_000);
    assert_eq!((bench.sink.events.len(), bench.sink.items[0].len()), (0, 1));
}

#[test]
fn scaled_windows() {
    let mut bench = Bench::new(Options::default());
    play(
        &mut bench,
        "A S 0 0 scale=9; B SA 0 1 scale=9; A . 1 1; B . 1 1; A . 200001 1 x; !A . 2000001 1 x",
    );
    assert_eq!((bench.connection.window(B), bench.sink.count(Event::OutOfWindow)), (512_000, 1));
}

/// Both directions of a capture lose more than a window: the connection goes on behind it. One side alone cannot do that.
#[test]
fn loss_of_both_directions() {
    let mut bench = Bench::open(Options::default());
    play(
        &mut bench,
        "A . 1 1 ab; !A . 900001 1 cd; !A . 900003 1 ef; B . 1 900005 x; A . 900005 2 gh",
    );
    assert_eq!(bench.sink.count(Event::OutOfWindow), 2);
    assert_eq!(bench.sink.count(Event::AcknowledgedLost), 1);
    let mut record = SideRecord::default();
    bench.connection.report(A, &mut record);
    assert_eq!((record.gaps, record.gap_bytes, record.stream_bytes), (1, 900_002, 4));
    assert_eq!(bench.sink.bytes(B), b"x");

    let mut bench = Bench::open(Options::default());
    play(&mut bench, "A . 1 1 ab; !A . 900001 800001 cd; B . 800001 900003 x; A . 900003 800002 e");
    assert_eq!(bench.sink.count(Event::Resynchronised), 1);
    assert!(bench.sink.bytes(A).ends_with(b"-e"));
    assert!(bench.sink.bytes(B).ends_with(b"-x"));
    bench.close();
}

#[test]
fn urgent_bytes() {
    let drop = |options| Options { urgent: Urgent::Drop, ..options };
    cases! {
        "inline"; "A AU 1 1 abc urgent=2; A . 4 1 d" => "abcd" "" Established [Urgent]
        "dropped" with drop; "A AU 1 1 abc urgent=2; A . 4 1 d" => "acd" "" Established [Urgent]
        "dropped, pointer 0" with drop; "A AU 1 1 abc; A . 4 1 d" => "bcd" "" Established [Urgent]
        "beyond the segment" with drop; "A AU 1 1 abc urgent=9; A . 4 1 d" => "abcd" "" Established [Urgent]
        "dropped in the buffer" with drop; "A AU 3 1 cde urgent=2; A . 1 1 ab; B . 1 6; A . 6 1 f" => "abcef" "" Established [Urgent]
        "only it" with drop; "A AU 1 1 a urgent=1; A AU 2 1 b urgent=1; A . 3 1 c" => "c" "" Established [Urgent Urgent]
        "repeated" with drop; "A AU 1 1 ab urgent=1; A AU 1 1 ab urgent=1; A FA 3 1" => "b|" "" FinWait1 [Urgent Retransmission]
        "disputed" with drop; "A AU 3 1 c urgent=1; A . 2 1 bc; A . 1 1 a" => "abc" "" Established [Urgent Conflict]
    }
}

/// The overlaps of Novak and Sturges, in the buffer: where old bytes are digits and new ones letters.
#[test]
fn policies() {
    // Old segments: 3..6 and 9..12 of the stream, `333` and `999`; place 1 comes last and opens the stream.
    let rows: [(&str, &str, [&str; 6]); 8] = [
        // first, last, bsd, linux, old linux, solaris
        ("begins before", "A . 2 1 aaa", ["-a333", "-aaa3", "-aaa3", "-aaa3", "-aaa3", "-a333"]),
        ("over it", "A . 2 1 aaaaa", ["-a333a", "-aaaaa", "-aaaaa", "-aaaaa", "-aaaaa", "-aaaaa"]),
        ("begins with it", "A . 3 1 aa", ["--333", "--aa3", "--333", "--333", "--333", "--333"]),
        ("the same", "A . 3 1 aaa", ["--333", "--aaa", "--333", "--333", "--aaa", "--aaa"]),
        (
            "ends beyond",
            "A . 3 1 aaaa",
            ["--333a", "--aaaa", "--333a", "--aaaa", "--aaaa", "--aaaa"],
        ),
        ("within", "A . 4 1 a", ["--333", "--3a3", "--333", "--333", "--333", "--333"]),
        ("ends with it", "A . 4 1 aa", ["--333", "--3aa", "--333", "--333", "--333", "--333"]),
        (
            "begins within",
            "A . 4 1 aaa",
            ["--333a", "--3aaa", "--333a", "--333a", "--333a", "--3aaa"],
        ),
    ];
    let policies = [
        [Policy::First, Policy::Vista].as_slice(),
        &[Policy::Last],
        &[
            Policy::Bsd,
            Policy::Windows,
            Policy::Windows2003,
            Policy::Hpux10,
            Policy::Irix,
            Policy::Macos,
        ],
        &[Policy::Linux],
        &[Policy::OldLinux],
        &[Policy::Solaris, Policy::Hpux11],
    ];
    for (name, line, expected) in rows {
        for (policies, expected) in policies.iter().zip(expected) {
            for &policy in *policies {
                let mut bench = Bench::open(Options { policy, ..Options::default() });
                play(&mut bench, &format!("A . 3 1 333; {line}; close"));
                let found = String::from_utf8(bench.sink.bytes(A)).unwrap();
                assert_eq!(found, expected, "{name}, {policy:?}");
                assert_eq!(bench.sink.count(Event::Conflict), 1, "{name}, {policy:?}");
            }
        }
    }
    // A segment in order meets what is buffered by the same rules; a connection may have its own.
    for (policy, expected) in
        [(Policy::First, "xx333x"), (Policy::Bsd, "xxxxxx"), (Policy::Solaris, "xxxxxx")]
    {
        let mut bench = Bench::open(Options { policy: Policy::Last, ..Options::default() });
        bench.connection.set_policy(Some(policy));
        play(&mut bench, "A . 3 1 333; A . 1 1 xxxxxx; close");
        assert_eq!(String::from_utf8(bench.sink.bytes(A)).unwrap(), expected, "{policy:?}");
    }
}

#[test]
fn enough() {
    use super::Want;
    for want in [Want::EnoughOfSide, Want::EnoughOfFlow] {
        for script in [
            "A . 1 1 ab; A . 4 1 d; A . 3 1 c; A . 6 1 f",
            "A . 4 1 d; A . 2 1 b; A . 1 1 abc; A . 5 1 e",
        ] {
            let mut bench = Bench::open(Options::default());
            bench.sink.enough[0] = Some((2, want));
            play(&mut bench, script);
            assert_eq!(bench.sink.end[0], Some(End::Enough));
            assert_eq!(bench.reassembler.buffer_bytes_used(), 0);
            play(&mut bench, "B . 2 1 y; B . 1 1 x");
            let is_flow = want == Want::EnoughOfFlow;
            assert_eq!(bench.sink.bytes(B), if is_flow { b"".as_slice() } else { b"xy" });
            assert_eq!(bench.sink.end[1].is_some(), is_flow);
            play(&mut bench, "A FA 7 3; B FA 3 8; A . 8 4");
            assert_eq!(bench.connection.state(), TcpState::TimeWait);
            bench.close();
        }
    }
}

/// A stream of more than 4 GiB: offsets go on, sequence numbers wrap.
#[test]
fn beyond_the_circle_of_numbers() {
    let mut bench = Bench::open(Options::default());
    let bytes = vec![7; 1 << 19];
    struct Count(u64);
    impl super::Sink for Count {
        fn data(&mut self, _: Side, offset: u64, bytes: &[u8]) -> super::Want {
            assert_eq!(offset, self.0);
            self.0 += bytes.len() as u64;
            super::Want::More
        }
        fn gap(&mut self, _: Side, _: u64, _: u64) {
            unreachable!("nothing is lost");
        }
        fn end(&mut self, _: Side, _: u64, _: End) {}
    }
    let mut sink = Count(0);
    let rounds = 3 * 8192 + 5;
    for round in 0..rounds {
        // Each second pair is swapped.
        let index = if round % 4 < 2 || round + 1 >= rounds { round } else { round ^ 1 };
        let sequence = 1_001u32.wrapping_add(index << 19);
        let segment = Segment {
            sequence,
            acknowledgment: 5_001,
            flags: ACK,
            window: 9,
            payload: &bytes,
            ..Segment::default()
        };
        let Bench { reassembler, connection, .. } = &mut bench;
        // Without acknowledgments of B there is no window; they would come with each segment.
        connection.cold_mut(B).scale = super::super::connection::SCALE_UNKNOWN;
        connection.acked[1] = connection.next(A);
        let outcome = reassembler.segment(connection, A, &segment, 0, &mut sink);
        assert_eq!(outcome, Outcome::Accepted);
    }
    assert_eq!(sink.0, u64::from(rounds) << 19);
    assert_eq!(bench.connection.offset(A), sink.0);
    assert_eq!(bench.reassembler.counters(), Default::default());
}

#[test]
fn times() {
    let mut bench = Bench::open(Options::default());
    // A microsecond for each segment: SYN, SYN-ACK, ACK.
    assert_eq!(bench.connection.handshake_rtt_ns(), Some(2_000));
    play(&mut bench, "A . 1 1 ab; A . 3 1 cd; B . 1 3; B . 1 5");
    let rtt = |bench: &Bench| {
        let mut record = SideRecord::default();
        bench.connection.report(A, &mut record);
        record.rtt_min_ns
    };
    assert_eq!(rtt(&bench), Some(2_000));
    // What was repeated does not count (Karn): which of the two was acknowledged?
    let mut bench = Bench::open(Options::default());
    play(&mut bench, "A . 1 1 ab; A . 1 1 ab; B . 1 3");
    assert_eq!(rtt(&bench), None);
    // Over the same samples: smaller ones count, each 16 KiB.
    let mut bench = Bench::open(Options::default());
    let bytes = vec![0; 16 << 10];
    for (round, wait) in [5, 2, 7].into_iter().enumerate() {
        let _ = bench.data(A, (round as u32) << 14, 0, &bytes);
        bench.now_ns += wait * 1_000;
        let _ = bench.data(B, 0, (round as u32 + 1) << 14, b"");
    }
    assert_eq!(rtt(&bench), Some(3_000));
}

/// What one hole costs is bounded; the hole stays, and what is farthest ahead is not kept.
#[test]
fn bounds_keep_what_is_nearest() {
    // The share is two blocks: one unit for the connection, and 47 segments of one byte.
    let options = Options { buffer_bytes_per_flow: 2 * 1536, ..Options::default() };
    let mut bench = Bench::open(options);
    (1..=47).for_each(|at| assert_eq!(bench.data(A, at * 2, 0, b"x"), Outcome::Accepted));
    assert_eq!(bench.reassembler.counters().given_up_flow, 0);
    assert_eq!(bench.reassembler.buffer_bytes_used(), 2 * 1536);
    // Farther ahead than all: it is not kept. Nearer: the last one is not kept any more.
    let _ = bench.data(A, 96, 0, b"y");
    let _ = bench.data(A, 1, 0, b"x");
    assert_eq!(bench.reassembler.counters().given_up_flow, 2);
    assert_eq!(bench.sink.count(Event::GivenUp), 2);
    assert_eq!(bench.sink.items[0], []);
    let _ = bench.data(A, 0, 0, b"x");
    assert_eq!(bench.sink.bytes(A), b"xxx");
    (1..=47).for_each(|at| assert_eq!(bench.data(A, at * 2 + 1, 0, b"x"), Outcome::Accepted));
    assert_eq!(bench.sink.bytes(A), [b'x'; 94]);
    let _ = bench.data(A, 94, 0, b"xxx");
    assert_eq!(bench.sink.bytes(A), [b'x'; 97]);
    // Bytes that never come again are a gap at the end.
    let mut bench = Bench::open(options);
    let _ = bench.data(A, 1, 0, &[b'x'; 1460]);
    let _ = bench.data(A, 2000, 0, &[b'x'; 1460]);
    bench.close();
    let gap = super::Item::Gap(3460 - 1461);
    assert_eq!(
        bench.sink.items[0],
        [super::Item::Gap(1), super::Item::Data(vec![b'x'; 1460]), gap]
    );
}

/// A connection that takes all memory gives it back, from its far end, to those that hold less.
#[test]
fn who_holds_most_gives_first() {
    let options = Options::default();
    let mut big = Bench::open(options);
    let mut small = Bench::open(options);
    let reassembler = || super::Reassembler::new(Options { buffer_bytes: 10 * 1536, ..options });
    let with = |bench: &mut Bench, shared: &mut super::Reassembler, at: u32, bytes: &[u8]| {
        std::mem::swap(&mut bench.reassembler, shared);
        let _ = bench.data(A, at, 0, bytes);
        std::mem::swap(&mut bench.reassembler, shared);
    };
    let mut shared = reassembler();
    for at in 0..200 {
        with(&mut big, &mut shared, 2 + at * 4, b"bb");
    }
    for at in 0..20 {
        with(&mut big, &mut shared, 1000 + at * 2000, &[b'b'; 1460]);
    }
    let used = shared.buffer_bytes_used();
    // Its share is all there is.
    let Counters { given_up_flow, given_up_total } = shared.counters();
    assert!(used <= 10 * 1536 && given_up_flow > 0 && given_up_total == 0);
    with(&mut small, &mut shared, 2000, &[b's'; 1460]);
    with(&mut small, &mut shared, 0, &[b's'; 2000]);
    assert_eq!(small.sink.bytes(A), [b's'; 3460]);
    assert_eq!(small.sink.count(Event::GivenUp), 0);
    assert!(shared.counters().given_up_total > 0);
    // It hears of it, and its own stream goes on.
    let heard = big.sink.count(Event::GivenUp);
    with(&mut big, &mut shared, 0, b"bb");
    assert_eq!(big.sink.bytes(A), b"bbbb");
    assert_eq!(big.sink.count(Event::GivenUp), heard + 1);
    for mut bench in [big, small] {
        std::mem::swap(&mut bench.reassembler, &mut shared);
        bench.reassembler.close(&mut bench.connection, &mut bench.sink);
        std::mem::swap(&mut bench.reassembler, &mut shared);
    }
    assert_eq!(shared.buffer_bytes_used(), 0);

    // Where packets that are not kept are dropped, none of them gives way.
    let options = Options { full: Full::RefuseNew, ..options };
    let (mut big, mut small) = (Bench::open(options), Bench::open(options));
    let mut shared = super::Reassembler::new(Options { buffer_bytes: 10 * 1536, ..options });
    for at in (0..20).rev() {
        with(&mut big, &mut shared, 1000 + at * 2000, &[b'b'; 1460]);
    }
    let kept = 20 - big.sink.count(Event::GivenUp);
    with(&mut small, &mut shared, 2000, &[b's'; 1460]);
    assert_eq!((kept, small.sink.count(Event::GivenUp)), (9, 1));
    with(&mut small, &mut shared, 0, &[b's'; 2000]);
    with(&mut small, &mut shared, 2000, &[b's'; 1460]);
    assert_eq!(small.sink.bytes(A), [b's'; 3460]);
    std::mem::swap(&mut big.reassembler, &mut shared);
    big.close();
}
