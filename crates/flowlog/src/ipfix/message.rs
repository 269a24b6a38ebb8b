//! A message: a header, and sets of templates or of records (RFC 7011 §3). Templates have messages of their own, so that
//! they can be sent at any time, before a message of records that is already there.
//!
//! ```text
//!  | version 2 | length 2 | export time 4 | sequence number 4 | observation domain 4 |   16 bytes
//!  | set id 2 | length 2 | records of one template …  |  set id 2 | length 2 | …
//! ```

use std::time::{SystemTime, UNIX_EPOCH};

use stream::FlowRecord;

use super::deltas::Delta;
use super::template::Template;

/// Shortest length that a message may be limited to: every host takes UDP datagrams of it (RFC 7011 §10.3.3).
pub(super) const LEN_MIN: usize = 512;
/// The length of a message has 16 bits.
pub(super) const LEN_MAX: usize = 65_535;

const HEADER_LEN: usize = 16;
const SET_HEADER_LEN: usize = 4;
const VERSION: u16 = 10;
/// Set of templates.
const TEMPLATE_SET: u16 = 2;

/// A message that is being filled.
pub(super) struct Message {
    bytes: Vec<u8>,
    len_max: usize,
    observation_domain: u32,
    /// Template of the last set, and where the set begins.
    open: Option<(Template, usize)>,
    records: u32,
}

impl Message {
    pub(super) fn new(len_max: usize, observation_domain: u32) -> Self {
        let bytes = Vec::with_capacity(len_max);
        Self { bytes, len_max, observation_domain, open: None, records: 0 }
    }

    /// Records in it.
    pub(super) fn records(&self) -> u32 {
        self.records
    }

    /// Empties it.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.open = None;
        self.records = 0;
    }

    /// Appends what one side of a flow sent; false if there is no room, which an empty message always has.
    pub(super) fn push(&mut self, record: &FlowRecord, delta: &Delta, side: usize) -> bool {
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER_LEN, 0);
        }
        let template = Template::of(record, side);
        let is_open = self.open.is_some_and(|(last, _)| last == template);
        let set_header = if is_open { 0 } else { SET_HEADER_LEN };
        if self.bytes.len() + set_header + template.record_len() > self.len_max {
            return false;
        }
        if !is_open {
            self.close_set();
            self.open = Some((template, self.bytes.len()));
            self.bytes.extend(template.id().to_be_bytes());
            self.bytes.extend([0; 2]);
        }
        template.write(record, delta, side, &mut self.bytes);
        self.records += 1;
        true
    }

    /// The whole message. `sequence` is the number of records sent before it (§3.1).
    pub(super) fn finish(&mut self, sequence: u32) -> &[u8] {
        self.close_set();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let len = self.bytes.len() as u16;
        let header = &mut self.bytes[..HEADER_LEN];
        header[..2].copy_from_slice(&VERSION.to_be_bytes());
        header[2..4].copy_from_slice(&len.to_be_bytes());
        header[4..8].copy_from_slice(&(now.as_secs() as u32).to_be_bytes());
        header[8..12].copy_from_slice(&sequence.to_be_bytes());
        header[12..].copy_from_slice(&self.observation_domain.to_be_bytes());
        &self.bytes
    }

    fn close_set(&mut self) {
        let Some((_, start)) = self.open.take() else { return };
        set_len(&mut self.bytes, start);
    }
}

/// A message of all templates; `sequence` as of [`Message::finish`]. It fits into [`LEN_MIN`].
pub(super) fn of_templates(sequence: u32, observation_domain: u32) -> Vec<u8> {
    let mut message = Message::new(LEN_MIN, observation_domain);
    let bytes = &mut message.bytes;
    bytes.resize(HEADER_LEN, 0);
    bytes.extend(TEMPLATE_SET.to_be_bytes());
    bytes.extend([0; 2]);
    for template in Template::ALL {
        template.describe(bytes);
    }
    set_len(bytes, HEADER_LEN);
    debug_assert!(bytes.len() <= LEN_MIN);
    message.finish(sequence).to_vec()
}

/// Writes the length of the set that begins at `start` and ends the message so far.
fn set_len(bytes: &mut [u8], start: usize) {
    let len = (bytes.len() - start) as u16;
    bytes[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
}
