//! Stage `cipher`: encrypts or decrypts the payload of TCP and UDP.
//!
//! | | |
//! | --- | --- |
//! | reads | the packets |
//! | writes | the packets: payload, lengths, checksums; columns of its own |
//! | next | all others |
//! | drop | too long when encrypted; fragments; TCP and UDP out of reach; lengths that do not fit the mode; wrong tags and padding; wrong headers |
//!
//! ```text
//!  pre_shade    finds the payload, makes room for what the cipher adds
//!  shade        encrypts or decrypts (`shade`)
//!  post_shade   takes away what the cipher had added; lengths and checksums
//! ```
//!
//! It decodes packets itself, so it may be anywhere in a pipeline. A later stage that reads packets sees them changed.

use std::sync::Arc;

use chunk::{
    Chunk, ColumnSet, Columns, Declaration, DropReason, Packet, Pool, ReasonBlock, Verdict,
};
use controlplane::{PartId, Tables};
use crypto::modes::{Mode, Padding};
use engine::{Context, Phases, Shade, Stage};
use packet::{Decoded, IpProtocol};

use super::columns::{self, CipherColumns};
use super::headers::{Found, Headers, Payload, TRAILER_MAX, find, grow, shrink};
use super::keys::Master;
use super::reasons;
use super::settings::{Direction, Settings};
use super::shade::{CipherShade, Counters};
use super::table::KeyPart;
use crate::received;
use crate::records::{self, RecordColumns, Records};

/// The stage of one worker.
pub struct Cipher {
    name: &'static str,
    direction: Direction,
    mode: Mode,
    iv_len: usize,
    mtu: usize,
    shade: Arc<CipherShade>,
    counters: Arc<Counters>,
    decoded: Decoded,
    shares: bool,
    scratch: Box<[u8]>,
}

impl Cipher {
    /// A stage with these settings, whose key is this part of the tables, at first this one.
    pub fn new(
        name: &'static str,
        settings: &Settings,
        part: PartId<KeyPart>,
        master: Arc<Master>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            name,
            direction: settings.direction,
            mode: settings.mode(),
            iv_len: settings.iv_len(),
            mtu: settings.mtu.into(),
            shade: Arc::new(CipherShade::new(settings, part, master)),
            counters,
            decoded: Decoded::default(),
            shares: false,
            scratch: vec![0; TRAILER_MAX].into(),
        }
    }

    /// Other stages need the headers of packets, too: they are in records.
    #[must_use]
    pub(super) fn sharing(mut self, shares: bool) -> Self {
        self.shares = shares;
        self
    }

    /// Finds the payload of a packet, which was decoded, and makes room. `None`: the packet passes as it is.
    fn prepare(
        &mut self,
        packet: &mut Packet,
        pool: &mut Pool,
    ) -> Result<Option<Payload>, DropReason> {
        let payload = match find(packet, &self.decoded) {
            Found::Nothing => return Ok(None),
            Found::Payload(payload) => payload,
            Found::Fragment => return Err(reasons::CIPHER_FRAGMENT),
            Found::Encapsulated => return Err(reasons::CIPHER_ENCAPSULATED),
            Found::Malformed => return Err(reasons::CIPHER_MALFORMED),
        };
        let is_whole = |len: usize| {
            !matches!(self.mode, Mode::Ecb(_) | Mode::Cbc(_)) || len.is_multiple_of(16)
        };
        match self.direction {
            Direction::Decrypt => {
                let least = self.iv_len + self.mode.encrypted_len(0).max(1);
                let fits = payload.len >= least && is_whole(payload.len - self.iv_len);
                if fits { Ok(Some(payload)) } else { Err(reasons::CIPHER_SHORT) }
            }
            Direction::Encrypt => {
                let is_padded =
                    matches!(self.mode, Mode::Ecb(Padding::Pkcs7) | Mode::Cbc(Padding::Pkcs7));
                if !is_padded && !is_whole(payload.len) {
                    return Err(reasons::CIPHER_NOT_WHOLE);
                }
                let (front, tail) =
                    (self.iv_len, self.mode.encrypted_len(payload.len) - payload.len);
                if front + tail > 0 {
                    if self.decoded.ip_total_len as usize + front + tail > self.mtu {
                        return Err(reasons::CIPHER_MTU);
                    }
                    if packet.frame_len() - payload.at - payload.len > TRAILER_MAX {
                        return Err(reasons::CIPHER_MALFORMED);
                    }
                    let scratch = &mut self.scratch;
                    if !grow(packet, pool, payload, (front, tail), scratch) {
                        return Err(chunk::reasons::NO_CELLS);
                    }
                }
                Ok(Some(payload))
            }
        }
    }
}

impl Stage<Tables> for Cipher {
    fn name(&self) -> &'static str {
        self.name
    }

    fn drop_reasons(&self) -> &'static [&'static ReasonBlock] {
        super::REASONS
    }

    fn columns(&self) -> &'static [Declaration] {
        match self.shares {
            true => &[CipherColumns::COLUMNS, RecordColumns::COLUMNS],
            false => &[CipherColumns::COLUMNS],
        }
    }

    fn zeroed(&self) -> ColumnSet {
        if self.shares { records::zeroed() } else { ColumnSet::EMPTY }
    }

    fn reads(&self) -> ColumnSet {
        ColumnSet::of(columns::READS)
    }

    fn writes(&self) -> ColumnSet {
        ColumnSet::of(columns::WRITES)
    }

    fn keeps(&self) -> ColumnSet {
        columns::all()
    }

    fn phases(&self) -> Phases {
        Phases::BOTH
    }

    fn changes_packets(&self) -> bool {
        true
    }

    fn reads_packets(&self) -> bool {
        true
    }

    /// Packets grow before they are encrypted: only those that no stage before it has settled.
    fn begins_segment(&self) -> bool {
        true
    }

    /// Lengths are right behind `post_shade` only.
    fn ends_segment(&self) -> bool {
        true
    }

    fn shader(&self) -> Option<Arc<dyn Shade<Tables>>> {
        Some(self.shade.clone())
    }

    fn pre_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        self.counters.derived.add(self.shade.follow(cx.tables));
        for (row, packet) in chunk.packets.iter_mut().enumerate() {
            let verdict = Verdict(chunk.rows.verdicts()[row]);
            if verdict.is_next() {
                match self.shares {
                    true => {
                        let mut records = Records::of_rows(&mut chunk.rows);
                        self.decoded = *records.of(row, packet);
                        // Its payload changes, perhaps its length.
                        records.forget(row);
                    }
                    false => received::decode_into(packet, &mut self.decoded),
                }
            }
            let view = CipherColumns::view(&mut chunk.rows);
            view.cipher_at[row] = 0;
            if !verdict.is_next() {
                continue;
            }
            cx.at(row);
            match self.prepare(packet, cx.pool) {
                Ok(None) => self.counters.passed.add(1),
                Ok(Some(payload)) => {
                    let headers = Headers::of(&self.decoded);
                    view.cipher_at[row] = payload.at as u16;
                    view.cipher_len[row] = payload.len as u32;
                    view.cipher_l3[row] = headers.l3 as u8;
                    view.cipher_l4[row] = headers.l4 as u16;
                    view.cipher_protocol[row] = headers.protocol.0;
                }
                Err(reason) => view.verdict[row] = Verdict::drop(reason).0,
            }
        }
    }

    fn post_shade(&mut self, chunk: &mut Chunk, cx: &mut Context<'_, Tables>) {
        self.counters.derived.add(self.shade.follow(cx.tables));
        let view = CipherColumns::view(&mut chunk.rows);
        for (row, packet) in chunk.packets.iter_mut().enumerate() {
            let at = usize::from(view.cipher_at[row]);
            if at == 0 || !Verdict(view.verdict[row]).is_next() {
                continue;
            }
            cx.at(row);
            let (len, done) = (view.cipher_len[row] as usize, view.cipher_done[row] as usize);
            self.counters.packets.add(1);
            self.counters.bytes.add(match self.direction {
                Direction::Encrypt => len,
                Direction::Decrypt => done,
            } as u64);
            let is_longer = self.direction == Direction::Decrypt && done != len;
            let payload = Payload { at, len };
            if is_longer
                && !shrink(packet, cx.pool, payload, (self.iv_len, done), &mut self.scratch)
            {
                view.verdict[row] = Verdict::drop(reasons::CIPHER_MALFORMED).0;
                continue;
            }
            let headers = Headers {
                l3: view.cipher_l3[row].into(),
                l4: view.cipher_l4[row].into(),
                protocol: IpProtocol(view.cipher_protocol[row]),
            };
            let sums = view.cipher_sums[row];
            let (old, new) = ((len, sums as u16), (done, (sums >> 16) as u16));
            headers.put_right(packet.data_mut(), old, new);
        }
    }

    fn describe(&self, chunk: &mut Chunk, row: usize, _: &Tables) -> String {
        let view = CipherColumns::view(&mut chunk.rows);
        if view.cipher_at[row] == 0 {
            return "no payload of TCP or UDP".to_owned();
        }
        let (len, done) = (view.cipher_len[row], view.cipher_done[row]);
        match self.direction {
            Direction::Encrypt => format!("{len} bytes encrypted to {done}"),
            Direction::Decrypt => format!("{len} bytes decrypted to {done}"),
        }
    }
}
