use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const INSIDE: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 7);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(9, 0, 113, 1);

/// The end that takes the place of one: of another length, mostly.
fn outside(port: u16) -> (Ipv4Addr, u16) {
    (OUTSIDE, port.rotate_left(3) ^ 5)
}

/// The translator's part: only the inside host announces.
fn decide(own: &Announcement) -> Result<Option<(Ipv4Addr, u16)>, ()> {
    let is_own = own.address.is_none_or(|address| address == INSIDE);
    Ok(is_own.then(|| outside(own.port)))
}

fn six(address: Ipv4Addr, port: u16) -> String {
    let [a, b, c, d] = address.octets();
    format!("{a},{b},{c},{d},{},{}", port >> 8, port & 255)
}

/// A line, and what it becomes.
fn line(is_client: bool) -> impl Strategy<Value = (String, String)> {
    let all = (0usize..8, 1u16.., select(vec!["\r\n", "\n"]), "[ -~]{0,40}");
    all.prop_map(move |(what, port, end, text)| {
        let (to, new) = outside(port);
        let (from, to, other) =
            (six(INSIDE, port), six(to, new), six(Ipv4Addr::new(8, 8, 8, 8), port));
        let pair = match (what, is_client) {
            (0, true) => (format!("PORT {from}"), format!("PORT {to}")),
            (1, true) => (format!("port  {from} "), format!("port  {to} ")),
            (2, true) => (format!("EPRT |1|{INSIDE}|{port}|"), format!("EPRT |1|{OUTSIDE}|{new}|")),
            (3, true) => {
                (format!("EPRT !1!{INSIDE}!{port}! "), format!("EPRT !1!{OUTSIDE}!{new}! "))
            }
            (4, true) => (format!("PORT {other}"), format!("PORT {other}")),
            (0 | 1, false) => (
                format!("227 Entering 4 modes, ({from})."),
                format!("227 Entering 4 modes, ({to})."),
            ),
            (2, false) => (format!("227 ={from}"), format!("227 ={to}")),
            (3, false) => (format!("229 ok (|||{port}|)"), format!("229 ok (|||{new}|)")),
            (4, false) => (format!("227 ({other})"), format!("227 ({other})")),
            (5, _) => (format!("NOOP {from}"), format!("NOOP {from}")),
            // Nothing that begins a reply of several lines, or an announcement.
            _ => (format!("x{text}"), format!("x{text}")),
        };
        (pair.0 + end, pair.1 + end)
    })
}

/// The receiver: every byte that came, by its number.
#[derive(Default)]
struct Receiver {
    bytes: BTreeMap<u32, u8>,
    end: Option<u32>,
}

impl Receiver {
    fn acked(&self) -> u32 {
        (0..).find(|at| !self.bytes.contains_key(at)).unwrap_or(0)
    }
}

struct Sender {
    bytes: Vec<u8>,
    /// Places where it may cut.
    cuts: Vec<usize>,
    una: usize,
    next: usize,
}

impl Sender {
    /// A segment from `from` on that ends at one of the next places.
    fn segment(&self, from: usize, choice: usize) -> (usize, usize) {
        let ends: Vec<usize> =
            self.cuts.iter().copied().filter(|cut| *cut > from).take(60).collect();
        (from, ends.get(choice % ends.len().max(1)).copied().unwrap_or(self.bytes.len()))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    /// A connection with losses, repetitions and segments in any order, against a writer that has all lines at once. A sender
    /// that cuts behind lines gets all of them edited; of any other one each is edited or as it was, and the bytes of a number
    /// are never others, unless its receiver has acknowledged them.
    #[test]
    fn a_connection_gives_what_an_editor_of_the_whole_text_gives(
        is_client: bool, lines in (vec(line(true), 1..14), vec(line(false), 1..14)), first: u32, near_wrap: bool,
        is_whole: bool, room in select(vec![140usize, 300, 1460]),
        steps in vec((0u8..8, any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0usize..60), 20..300),
    ) {
        let lines = if is_client { lines.0 } else { lines.1 };
        let first = if near_wrap { 0u32.wrapping_sub(first % 300) } else { first };
        let bytes: Vec<u8> = lines.iter().flat_map(|(text, _)| text.bytes()).collect();
        let ends = lines.iter().scan(0, |at, (text, _)| { *at += text.len(); Some(*at) });
        let cuts = if is_whole { ends.collect() } else { (1..=bytes.len()).collect() };
        let mut sender = Sender { bytes, cuts, una: 0, next: 0 };
        let (mut stream, mut receiver, mut left) = (Stream::new(), Receiver::default(), 0);
        let mut heard = 0;
        let syn = Segment { seq: first, flags: flags::SYN, payload: b"", room };
        let passed = stream.pass(&syn, is_client, &mut [], decide).unwrap();
        prop_assert_eq!((passed.seq, passed.len), (first, None));
        let begin = first.wrapping_add(1);
        let mut flying: Vec<(usize, usize)> = Vec::new();
        let mut steps = steps.into_iter();
        for turn in 0.. {
            prop_assert!(turn < 4000, "it ends");
            let len = sender.bytes.len();
            // When the steps are over, the sender sends what is missing, in order and in whole lines.
            let (what, which, from, choice) = match steps.next() {
                Some((what, which, from, choice)) => (what, which.index(flying.len().max(1)), from.index(len), choice),
                None => (u8::from(flying.is_empty()) * 9, 0, 0, 0),
            };
            match what {
                0..=2 if !flying.is_empty() => {
                    let (from, to) = flying.remove(which);
                    let is_last = to == len;
                    let flags = if is_last { flags::FIN } else { 0 };
                    let payload = &sender.bytes[from..to];
                    let seq = begin.wrapping_add(from as u32);
                    let mut out = vec![0; room];
                    let segment = Segment { seq, flags, payload, room };
                    let passed = match stream.pass(&segment, is_client, &mut out, decide) {
                        Ok(passed) => passed,
                        Err(stop) => {
                            prop_assert_eq!(stop, Stop::Wait);
                            continue;
                        }
                    };
                    left += passed.left;
                    prop_assert_eq!(passed.seq, stream.edits().there(seq));
                    let sent = passed.len.map_or(&payload[..passed.kept], |len| &out[..len]);
                    prop_assert!(passed.len.is_none() || sent.len() <= room);
                    // Edits of what is acknowledged may be forgotten; its receiver takes it no more.
                    let at = distance(passed.seq, begin);
                    for (at, byte) in (at..).zip(sent).filter(|own| own.0 >= heard as i32) {
                        let at = at as u32;
                        let known = *receiver.bytes.entry(at).or_insert(*byte);
                        prop_assert_eq!(known, *byte, "byte {}", at);
                    }
                    if is_last && passed.kept == payload.len() {
                        let end = at as u32 + sent.len() as u32;
                        prop_assert_eq!(*receiver.end.get_or_insert(end), end);
                    }
                }
                3 if !flying.is_empty() => {
                    flying.remove(which);
                }
                4 => {
                    heard = receiver.acked();
                    let ack = begin.wrapping_add(heard);
                    let own = stream.acknowledged(ack).wrapping_sub(begin) as usize;
                    prop_assert!(own >= sender.una && own <= len, "{} {}", own, sender.una);
                    sender.una = own;
                    sender.next = sender.next.max(own);
                }
                // Again, from somewhere.
                5 if sender.next > 0 => {
                    let cut = sender.cuts.iter().copied().filter(|cut| *cut <= from && *cut < sender.next);
                    let from = cut.max().unwrap_or(0);
                    flying.push(sender.segment(from, choice % 7));
                }
                6 | 7 if sender.next < len && flying.len() < 5 => {
                    let (from, to) = sender.segment(sender.next, choice);
                    sender.next = to;
                    flying.push((from, to));
                }
                9 => {
                    heard = receiver.acked();
                    let ack = begin.wrapping_add(heard);
                    sender.una = stream.acknowledged(ack).wrapping_sub(begin) as usize;
                    if receiver.end == Some(receiver.acked()) {
                        break;
                    }
                    let ends = lines.iter().scan(0, |at, (text, _)| { *at += text.len(); Some(*at) });
                    let to = ends.filter(|end| *end > sender.una).min().unwrap_or(len);
                    flying.push((sender.una, to));
                }
                _ => {}
            }
        }
        let got: Vec<u8> = receiver.bytes.values().copied().collect();
        let mut rest = &got[..];
        let mut unedited = 0;
        for (from, to) in &lines {
            let is_edited = rest.starts_with(to.as_bytes());
            prop_assert!(is_edited || !is_whole && rest.starts_with(from.as_bytes()), "{:?}", from);
            rest = &rest[if is_edited { to.len() } else { from.len() }..];
            unedited += u32::from(!is_edited);
        }
        prop_assert!(rest.is_empty());
        // Lines in pieces that announce another host are not known as such.
        let foreign = lines.iter().filter(|(from, to)| from == to && from.contains("8,8,8,8")).count();
        prop_assert!((unedited..=unedited + foreign as u32).contains(&left), "{} {}", unedited, left);
    }

    /// Nothing panics, whatever comes.
    #[test]
    fn segments_of_any_kind(
        all in vec((any::<u32>(), 0u32..200, any::<u8>(), vec(any::<u8>(), 0..60), any::<bool>(), 0usize..90), 1..40), is_client: bool,
    ) {
        let mut stream = Stream::new();
        for (far, near, flags, payload, is_near, room) in all {
            let seq = if is_near { near } else { far };
            let mut out = [0; 90];
            let segment = Segment { seq, flags, payload: &payload, room };
            if let Ok(Passed { len: Some(len), .. }) = stream.pass(&segment, is_client, &mut out, decide) {
                prop_assert!(len <= out.len());
            }
            stream.acknowledged(far);
        }
    }
}

fn passed(stream: &mut Stream, seq: u32, text: &str, is_client: bool) -> Option<(u32, String)> {
    let mut out = [0; 200];
    let segment = Segment { seq, flags: 0, payload: text.as_bytes(), room: 200 };
    let passed = stream.pass(&segment, is_client, &mut out, decide).ok()?;
    let text = passed.len.map_or(&text.as_bytes()[..passed.kept], |len| &out[..len]);
    Some((passed.seq, String::from_utf8_lossy(text).into_owned()))
}

fn opened() -> Stream {
    Stream::from_syn(99)
}

#[test]
fn what_is_cut_in_an_announcement_waits_once() {
    let mut stream = opened();
    assert_eq!(passed(&mut stream, 100, "PORT 192,168", true), None);
    let whole = "PORT 192,168,1,7,4,0\r\n";
    let edited = format!("PORT {}\r\n", six(OUTSIDE, 1024u16.rotate_left(3) ^ 5));
    assert_eq!(passed(&mut stream, 100, whole, true), Some((100, edited.clone())));
    // Again the same, and no part of what was edited.
    assert_eq!(passed(&mut stream, 100, whole, true), Some((100, edited.clone())));
    assert_eq!(passed(&mut stream, 107, &whole[7..], true), None);
    assert_eq!(passed(&mut stream, 100, &whole[..9], true), None);
    assert_eq!(passed(&mut stream, 100, "PORT ", true), Some((100, "PORT ".into())));
    let more = (edited.len() as u32).wrapping_sub(whole.len() as u32);
    assert_eq!(
        passed(&mut stream, 122, "QUIT\r\n", true),
        Some((122u32.wrapping_add(more), "QUIT\r\n".into()))
    );
    // Whole lines before a part go on.
    assert_eq!(
        passed(&mut stream, 128, "NOOP\r\nEP", true),
        Some((128u32.wrapping_add(more), "NOOP\r\n".into()))
    );
    // A sender that cuts there each time.
    assert_eq!(
        passed(&mut stream, 134, "EP", true),
        Some((134u32.wrapping_add(more), "EP".into()))
    );
    let rest = "RT |1|192.168.1.7|1024|\r\n";
    assert_eq!(
        passed(&mut stream, 136, rest, true),
        Some((136u32.wrapping_add(more), rest.into())),
        "as it is"
    );
}

#[test]
fn what_comes_too_early_waits() {
    let mut stream = opened();
    assert_eq!(passed(&mut stream, 106, "NOOP\r\n", false), None);
    assert_eq!(
        passed(&mut stream, 106, "", false),
        Some((106, String::new())),
        "an acknowledgement"
    );
    assert!(passed(&mut stream, 100, "NOOP\r\n", false).is_some());
    assert!(passed(&mut stream, 106, "NOOP\r\n", false).is_some());
    // Joined in the middle: the first line may be the end of one.
    let mut stream = Stream::new();
    let text = "PORT 192,168,1,7,4,0\r\n";
    assert_eq!(passed(&mut stream, 7, text, true), Some((7, text.into())));
    assert_ne!(passed(&mut stream, 29, text, true), Some((29, text.into())));
}

#[test]
fn what_cannot_be_had_changes_nothing() {
    let (mut stream, text) = (opened(), b"PORT 192,168,1,7,4,0\r\n");
    let segment = Segment { seq: 100, flags: 0, payload: text, room: 200 };
    let refused = stream.pass(&segment, true, &mut [0; 200], |_| Err::<_, u8>(7));
    assert_eq!(refused, Err(Stop::Refused(7)));
    let (_, edited) = passed(&mut stream, 100, "PORT 192,168,1,7,4,0\r\n", true).unwrap();
    assert!(edited.starts_with("PORT 9,0,113,1,"));
}

#[test]
fn a_segment_that_would_be_too_long_ends_with_its_line() {
    let mut stream = opened();
    let text = format!("PORT 192,168,1,7,4,0\r\nNOOP {}\r\n", "x".repeat(60));
    let segment = Segment { seq: 100, flags: flags::FIN, payload: text.as_bytes(), room: 90 };
    let mut out = [0; 90];
    let passed = stream.pass(&segment, true, &mut out, decide).unwrap();
    assert_eq!(passed.kept, 22);
    let sent = std::str::from_utf8(&out[..passed.len.unwrap()]).unwrap();
    assert!(
        sent.starts_with("PORT 9,") && sent.ends_with("\r\n") && !sent.contains("NOOP"),
        "{sent}"
    );
    // Where not even the line fits, it stays.
    let mut stream = opened();
    let segment = Segment { room: 30, ..segment };
    let passed = stream.pass(&segment, true, &mut out, decide).unwrap();
    assert_eq!((passed.len, passed.left, passed.kept), (None, 1, text.len()));
}
