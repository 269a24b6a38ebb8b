//! A small collector: reads messages by RFC 7011 alone, and knows the elements by their numbers in IANA's registry.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, TcpStream};

/// A data record: values by the number of their element, as bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) template: u16,
    values: HashMap<u16, Vec<u8>>,
}

impl Record {
    pub(crate) fn number(&self, element: u16) -> Option<u64> {
        let value = self.values.get(&element)?;
        Some(value.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    pub(crate) fn address(&self, element: u16) -> Option<IpAddr> {
        let value = self.values.get(&element)?;
        match value.len() {
            4 => Some(IpAddr::from(<[u8; 4]>::try_from(&value[..]).unwrap())),
            16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(&value[..]).unwrap()).into()),
            _ => None,
        }
    }
}

/// The state of one transport session.
#[derive(Default)]
pub(crate) struct Session {
    templates: HashMap<u16, Vec<(u16, usize)>>,
    expected_sequence: Option<u32>,
    pub(crate) messages: usize,
    pub(crate) template_sets: usize,
    pub(crate) domain: u32,
    /// Records of which the sequence numbers say that they are missing.
    pub(crate) missing: u32,
    /// Sets of records without a template.
    pub(crate) unknown_sets: usize,
    pub(crate) longest: usize,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

impl Session {
    /// Reads one message (RFC 7011 §3.1).
    pub(crate) fn read(&mut self, message: &[u8]) -> Vec<Record> {
        assert_eq!(u16_at(message, 0), 10, "version");
        assert_eq!(usize::from(u16_at(message, 2)), message.len(), "length");
        assert!(u32_at(message, 4) > 1_700_000_000, "export time");
        let sequence = u32_at(message, 8);
        self.domain = u32_at(message, 12);
        self.messages += 1;
        self.longest = self.longest.max(message.len());
        self.missing += sequence.wrapping_sub(self.expected_sequence.unwrap_or(0));
        let mut records = Vec::new();
        let mut at = 16;
        while at < message.len() {
            // §3.3.2
            let (id, len) = (u16_at(message, at), usize::from(u16_at(message, at + 2)));
            assert!(len > 4 && at + len <= message.len(), "length of a set");
            let set = &message[at + 4..at + len];
            match id {
                2 => self.read_templates(set),
                256.. => self.read_records(id, set, &mut records),
                _ => panic!("set {id}"),
            }
            at += len;
        }
        self.expected_sequence = Some(sequence.wrapping_add(records.len() as u32));
        records
    }

    /// §3.4.1
    fn read_templates(&mut self, set: &[u8]) {
        self.template_sets += 1;
        let mut at = 0;
        while at + 4 <= set.len() {
            let (id, fields) = (u16_at(set, at), u16_at(set, at + 2));
            assert!(id >= 256);
            at += 4;
            let mut template = Vec::new();
            for _ in 0..fields {
                let element = u16_at(set, at);
                assert_eq!(element & 0x8000, 0, "an element of an enterprise");
                template.push((element, usize::from(u16_at(set, at + 2))));
                at += 4;
            }
            self.templates.insert(id, template);
        }
        assert_eq!(at, set.len());
    }

    fn read_records(&mut self, id: u16, mut set: &[u8], records: &mut Vec<Record>) {
        let Some(template) = self.templates.get(&id) else {
            self.unknown_sets += 1;
            return;
        };
        let record_len: usize = template.iter().map(|(_, len)| len).sum();
        while set.len() >= record_len {
            let mut record = Record { template: id, ..Default::default() };
            for &(element, len) in template {
                let (value, rest) = set.split_at(len);
                record.values.insert(element, value.to_vec());
                set = rest;
            }
            records.push(record);
        }
        assert!(set.iter().all(|byte| *byte == 0), "padding");
    }

    /// Reads the next message of a connection (§10.4): its header has the length. None at the end.
    pub(crate) fn read_from(&mut self, stream: &mut TcpStream) -> io::Result<Option<Vec<Record>>> {
        let mut message = vec![0; 16];
        match stream.read_exact(&mut message) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        message.resize(usize::from(u16_at(&message, 2)), 0);
        stream.read_exact(&mut message[16..])?;
        Ok(Some(self.read(&message)))
    }
}
