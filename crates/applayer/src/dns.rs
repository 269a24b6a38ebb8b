//! DNS (RFC 1035) over datagrams and streams: each message is a transaction.

use std::net::{Ipv4Addr, Ipv6Addr};

use l7proto::dns::{self, Message, NAME_MAX, Name, Record};

use crate::anomaly::AnomalyKind;
use crate::buffer::Buffer;
use crate::output::Output;
use crate::parser::{Next, Parser};
use crate::sink::{Direction, Progress};
use crate::transaction::{Data, Dns, DnsData, DnsQuestion, DnsRecord};

/// A side of a stream: messages behind their lengths (RFC 1035 §4.2.2).
#[derive(Debug, Default)]
struct Side {
    text: Vec<u8>,
    /// Where messages begin is not known any more.
    is_lost: bool,
    /// It was said that a length is 0.
    is_empty: bool,
}

/// A flow of DNS.
#[derive(Debug)]
pub(crate) struct DnsFlow {
    is_stream: bool,
    sides: [Side; 2],
}

impl DnsFlow {
    pub(crate) fn new(is_stream: bool) -> Self {
        Self { is_stream, sides: Default::default() }
    }
}

impl Parser for DnsFlow {
    fn held(&self) -> usize {
        size_of::<Self>() + self.sides.iter().map(|side| side.text.capacity()).sum::<usize>()
    }

    fn data(&mut self, out: &mut Output<'_>, direction: Direction, mut bytes: &[u8]) -> Next {
        if !self.is_stream {
            message(out, direction, bytes);
            return Next::More;
        }
        let side = &mut self.sides[direction as usize];
        while !bytes.is_empty() && !side.is_lost {
            let wanted = match side.text[..] {
                [high, low, ..] => 2 + usize::from(u16::from_be_bytes([high, low])),
                _ => 2,
            };
            let len = (wanted - side.text.len()).min(bytes.len());
            side.text.extend_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            if side.text.len() == 2 && side.text[..] == [0, 0] {
                side.text.clear();
                if !std::mem::replace(&mut side.is_empty, true) {
                    out.anomaly(AnomalyKind::DnsMalformed, None, Some(direction));
                }
            } else if let Some((found, _)) = dns::tcp_message(&side.text) {
                message(out, direction, found);
                side.text.clear();
            }
        }
        Next::More
    }

    fn gap(&mut self, _: &mut Output<'_>, direction: Direction, bytes: u64) -> Next {
        let side = &mut self.sides[direction as usize];
        // A gap within a message is a message that cannot be read; the next one may begin behind it.
        let left = match side.text[..] {
            [] => None,
            [high, low, ..] => {
                Some(2 + usize::from(u16::from_be_bytes([high, low])) - side.text.len())
            }
            [_] => None,
        };
        side.is_lost |= left.map(|left| left as u64) != Some(bytes);
        side.text.clear();
        let is_over = self.sides.iter().all(|side| side.is_lost);
        if is_over { Next::Bypass } else { Next::More }
    }

    fn end_of_side(&mut self, _: &mut Output<'_>, _: Direction) {}

    fn finish(&mut self, _: &mut Output<'_>) {}
}

/// Type of OPT (RFC 6891).
const OPT: u16 = 41;

fn message(out: &mut Output<'_>, direction: Direction, bytes: &[u8]) {
    let Some(message) = Message::parse(bytes) else {
        out.anomaly(AnomalyKind::DnsMalformed, None, Some(direction));
        return;
    };
    let flags = u16::from_be_bytes([bytes[2], bytes[3]]);
    let mut dns =
        Dns { id: message.id(), flags, rcode: u16::from(message.rcode()), ..Dns::default() };
    let mut left = out.limits.records;
    let mut is_malformed = false;
    let [questions, records @ ..] = message.counts().map(usize::from);
    for question in message.questions().take(left) {
        left -= 1;
        let Some(name) = name(&question.name) else {
            is_malformed = true;
            break;
        };
        dns.questions.push(DnsQuestion { name, kind: question.kind, class: question.class });
    }
    let are_whole = dns.questions.len() == questions;
    let mut count = 0;
    for record in message.records().take(if are_whole { left } else { 0 }) {
        count += 1;
        let Some(name) = name(&record.name) else {
            is_malformed = true;
            break;
        };
        if record.kind == OPT && record.section == 2 {
            dns.rcode |= ((record.ttl_s >> 24) as u16) << 4; // RFC 6891 §6.1.3
        }
        let data = data(&record);
        let section = record.section;
        let record =
            DnsRecord { name, kind: record.kind, class: record.class, ttl_s: record.ttl_s, data };
        match section {
            0 => dns.answers.push(record),
            1 => dns.authorities.push(record),
            _ => dns.additionals.push(record),
        }
    }
    dns.is_cut = !are_whole || count < records.iter().sum();
    // A truncated message may end anywhere.
    is_malformed |=
        dns.is_cut && count + dns.questions.len() < out.limits.records && flags & 0x200 == 0;

    let is_response = dns.is_response();
    let mut transaction = out.begin(Data::Dns(Box::new(dns)));
    let id = transaction.id;
    if let Data::Dns(dns) = &transaction.data {
        buffers(out, id, direction, dns);
    }
    let mut odd = |kind| out.anomaly(kind, Some(id), Some(direction));
    if is_malformed {
        odd(AnomalyKind::DnsMalformed);
    }
    match (direction, is_response) {
        (Direction::ToServer, true) => odd(AnomalyKind::DnsNotRequest),
        (Direction::ToClient, false) => odd(AnomalyKind::DnsNotResponse),
        _ => {}
    }
    if flags & 0x40 != 0 {
        odd(AnomalyKind::DnsZFlag);
    }
    if matches!(message.opcode(), 3 | 7..) {
        odd(AnomalyKind::DnsOpcode);
    }
    out.progress(&mut transaction, Progress::Done(direction));
    out.progress(&mut transaction, Progress::Finished);
}

fn buffers(out: &mut Output<'_>, id: u64, direction: Direction, dns: &Dns) {
    let mut give = |buffer, number, name: &[u8]| out.buffer(id, direction, buffer, number, name);
    for (number, question) in dns.questions.iter().enumerate() {
        give(Buffer::DnsQueriesRrname, number, &question.name);
        if !dns.is_response() {
            give(Buffer::DnsQueryName, number, &question.name);
        }
    }
    let sections = [
        (Buffer::DnsAnswersRrname, &dns.answers),
        (Buffer::DnsAuthoritiesRrname, &dns.authorities),
        (Buffer::DnsAdditionalsRrname, &dns.additionals),
    ];
    for (buffer, records) in sections {
        for (number, record) in records.iter().enumerate() {
            give(buffer, number, &record.name);
        }
    }
    if dns.is_response() {
        for (number, record) in dns.answers.iter().enumerate() {
            give(Buffer::DnsAnswerName, number, &record.name);
        }
    }
}

fn name(name: &Name<'_>) -> Option<Vec<u8>> {
    name.write_raw(&mut [0; NAME_MAX]).map(<[u8]>::to_vec)
}

/// What the data of a record say; their bytes where they are broken.
fn data(record: &Record<'_>) -> DnsData {
    read(record).unwrap_or_else(|| DnsData::Other(record.data.to_vec()))
}

fn read(record: &Record<'_>) -> Option<DnsData> {
    let data = record.data;
    let word = |at: usize| Some(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]));
    // A name at a place of the data, and where it ends.
    let named = |at: usize| {
        let (found, end) = record.name_at(at)?;
        Some((name(&found)?, end))
    };
    Some(match record.kind {
        1 => DnsData::A(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?)),
        28 => DnsData::Aaaa(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?)),
        // NS, MD, MF, CNAME, MB, MG, MR, PTR, DNAME
        2..=5 | 7..=9 | 12 | 39 => DnsData::Name(named(0)?.0),
        6 => {
            let (mname, at) = named(0)?;
            let (rname, at) = named(at)?;
            let mut numbers = [0; 5];
            for (number, bytes) in numbers.iter_mut().zip(data.get(at..at + 20)?.chunks_exact(4)) {
                *number = u32::from_be_bytes(bytes.try_into().ok()?);
            }
            DnsData::Soa { mname, rname, numbers }
        }
        15 => DnsData::Mx { preference: word(0)?, name: named(2)?.0 },
        16 | 99 => {
            let (mut texts, mut rest) = (Vec::new(), data);
            while let Some((len, behind)) = rest.split_first() {
                let (text, next) = behind.split_at_checked(usize::from(*len))?;
                texts.push(text.to_vec());
                rest = next;
            }
            DnsData::Txt(texts)
        }
        33 => {
            DnsData::Srv { priority: word(0)?, weight: word(2)?, port: word(4)?, name: named(6)?.0 }
        }
        44 => DnsData::Sshfp {
            algorithm: *data.first()?,
            kind: *data.get(1)?,
            fingerprint: data[2..].to_vec(),
        },
        64 | 65 => {
            let (name, at) = named(2)?;
            DnsData::Svcb { priority: word(0)?, name, parameters: data.get(at..)?.to_vec() }
        }
        257 => {
            let len = usize::from(*data.get(1)?);
            let (tag, value) = data.get(2..)?.split_at_checked(len)?;
            DnsData::Caa { flags: data[0], tag: tag.to_vec(), value: value.to_vec() }
        }
        _ => return None,
    })
}
