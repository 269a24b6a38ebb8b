//! The cipher over a chunk: a pure function of the payload, the headers and the key.
//!
//! ```text
//!  rows ─▶ groups of 32: names of connections ─▶ keys ─▶ initialisation vectors ─▶ one batch of texts ─▶ sums, lengths
//! ```
//!
//! It works on places that columns say, block by block of 16 bytes, and leaves lengths and headers to `post_shade`. A device reads the
//! same columns and writes the same ones (`kernels`).
//!
//! Threads: one worker, and a simulated device in its place.

use std::array::from_fn;
use std::sync::{Arc, Mutex, PoisonError};

use chunk::{Columns, Packet, Rows, Verdict};
use controlplane::{PartId, Tables};
use crypto::modes::{Mode, ModeError, Text, decrypt_batch, encrypt_batch};
use engine::{Counter, KernelForm, Shade};
use packet::IpProtocol;
use packet::checksum::{finish, partial_sum};

use super::columns::{CipherColumns, CipherView};
use super::headers::be16;
use super::kernels;
use super::keys::{Connections, Master, NAME, Name, Pair};
use super::reasons;
use super::settings::{Direction, Settings, Vector};
use super::table::{KeyPart, KeyTable};

/// Packets that are encrypted together.
const GROUP: usize = 32;
/// Bytes of the longest payload, with what is added to it.
const TEXT_MAX: usize = (1 << 16) + 64;

/// What one worker's stages of a name count.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets encrypted or decrypted.
    pub packets: Counter,
    /// Bytes of their payload, without what the cipher adds.
    pub bytes: Counter,
    /// Packets without payload of TCP or UDP, which pass as they are.
    pub passed: Counter,
    /// Keys that the worker derived.
    pub derived: Counter,
}

/// The shade of one worker.
pub struct CipherShade {
    direction: Direction,
    mode: Mode,
    vector: Vector,
    iv_len: usize,
    part: PartId<KeyPart>,
    state: Mutex<State>,
}

struct State {
    master: Arc<Master>,
    keys: Connections,
    /// Payload of frames that lie in several cells.
    scratch: Box<[u8]>,
}

impl State {
    fn follow(&mut self, table: &KeyTable) {
        if !Arc::ptr_eq(&self.master, &table.0) {
            self.keys.clear();
            self.master = table.0.clone();
        }
    }
}

/// A packet of a group.
#[derive(Clone, Copy)]
struct Member {
    row: usize,
    slot: usize,
    at: usize,
    len: usize,
    name: Name,
    number: u64,
}

const NOBODY: Member = Member { row: 0, slot: 0, at: 0, len: 0, name: [0; NAME], number: 0 };

/// One's complement sums of what is encrypted, while that is under way.
#[derive(Clone, Copy, Default)]
struct Sums {
    old: u32,
    /// Of the initialisation vector that is in front afterwards.
    front: u32,
}

impl CipherShade {
    /// The shade of settings, whose key is this part of the tables, at first this one.
    pub fn new(settings: &Settings, part: PartId<KeyPart>, master: Arc<Master>) -> Self {
        let count = if master.is_fixed() { 0 } else { settings.connections as usize };
        let scratch = vec![0; TEXT_MAX].into();
        let state = State { master, keys: Connections::new(count), scratch };
        Self {
            direction: settings.direction,
            mode: settings.mode(),
            vector: settings.iv,
            iv_len: settings.iv_len(),
            part,
            state: Mutex::new(state),
        }
    }

    /// Wipes the keys of connections if the tables have another key, which packets of other versions get again. How many keys were
    /// derived since the last time.
    pub fn follow(&self, tables: &Tables) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.follow(tables.part(self.part));
        state.keys.take_derived()
    }

    fn is_encrypting(&self) -> bool {
        self.direction == Direction::Encrypt
    }

    /// Bytes of the payload with what the cipher adds, of a member.
    fn region_len(&self, len: usize) -> usize {
        if self.is_encrypting() { self.iv_len + self.mode.encrypted_len(len) } else { len }
    }

    /// The text of a member in its region, and the sums so far.
    fn text<'a>(&self, member: &Member, pair: &'a Pair, region: &'a mut [u8]) -> (Text<'a>, Sums) {
        let (front, rest) = region.split_at_mut(self.iv_len.min(region.len()));
        let (text_len, mut sums) = match self.is_encrypting() {
            true => (member.len, Sums::default()),
            false => {
                let len = rest.len();
                (len, Sums { old: partial_sum(front), front: 0 })
            }
        };
        sums.old += partial_sum(&rest[..text_len]);
        let mut iv = [0; 16];
        match (self.vector, self.is_encrypting()) {
            _ if self.mode.iv_len() == 0 => {}
            (Vector::Derived, _) => {
                let mut beside = [0; NAME + 8];
                beside[..NAME].copy_from_slice(&member.name);
                beside[NAME..].copy_from_slice(&member.number.to_be_bytes());
                iv = pair.vector.of(&beside, &[]);
            }
            (Vector::Carried, true) => {
                iv = pair.vector.of(&member.name, &rest[..text_len]);
                iv[self.iv_len..].fill(0);
                front.copy_from_slice(&iv[..self.iv_len]);
                sums.front = partial_sum(front);
            }
            (Vector::Carried, false) => iv[..front.len()].copy_from_slice(front),
        }
        (Text::new(&pair.text, iv, rest, text_len), sums)
    }

    /// Writes what became of a text.
    fn settle(&self, member: &Member, text: &Text<'_>, sums: Sums, view: &mut CipherView<'_>) {
        let row = member.row;
        let len = match text.result {
            Ok(len) => len,
            Err(error) => {
                let reason = match (error, self.is_encrypting()) {
                    (ModeError::NotGenuine, _) => reasons::CIPHER_NOT_GENUINE,
                    (_, true) => reasons::CIPHER_NOT_WHOLE,
                    (_, false) => reasons::CIPHER_SHORT,
                };
                view.verdict[row] = Verdict::drop(reason).0;
                return;
            }
        };
        let new = sums.front + partial_sum(&text.buffer[..len]);
        let front = if self.is_encrypting() { self.iv_len } else { 0 };
        view.cipher_done[row] = (front + len) as u32;
        view.cipher_sums[row] = u32::from(!finish(sums.old)) | u32::from(!finish(new)) << 16;
    }

    fn run(&self, texts: &mut [Text<'_>]) {
        match self.direction {
            Direction::Encrypt => encrypt_batch(texts),
            Direction::Decrypt => decrypt_batch(texts),
        }
    }

    /// Encrypts or decrypts the packets of a group, in the order of their rows.
    fn group(
        &self,
        members: &[Member],
        packets: &mut [Packet],
        view: &mut CipherView<'_>,
        (keys, master, scratch): (&Connections, &Master, &mut [u8]),
    ) {
        let pair_of = |member: &Member| keys.pair(member.slot, master);
        let (Some(first), Some(last)) = (members.first(), members.last()) else { return };
        let Some(any) = pair_of(first) else { return };
        // Those in one cell together, and then the others by themselves.
        let mut texts: [Text<'_>; GROUP] = from_fn(|_| Text::new(&any.text, [0; 16], &mut [], 0));
        let mut sums = [Sums::default(); GROUP];
        let mut of = [&NOBODY; GROUP];
        let mut used = 0;
        let mut wanted = members.iter().peekable();
        for (row, packet) in (first.row..).zip(&mut packets[first.row..=last.row]) {
            let Some(member) = wanted.next_if(|member| member.row == row) else { continue };
            if packet.cells() > 1 {
                continue;
            }
            let end = member.at + self.region_len(member.len);
            let region = packet.data_mut().get_mut(member.at..end);
            let (Some(region), Some(pair)) = (region, pair_of(member)) else {
                view.verdict[row] = Verdict::drop(reasons::CIPHER_MALFORMED).0;
                continue;
            };
            (texts[used], sums[used]) = self.text(member, pair, region);
            of[used] = member;
            used += 1;
        }
        self.run(&mut texts[..used]);
        for ((text, sums), member) in texts.iter().zip(&sums).zip(of).take(used) {
            self.settle(member, text, *sums, view);
        }
        for member in members {
            let packet = &mut packets[member.row];
            if packet.cells() <= 1 {
                continue;
            }
            let len = self.region_len(member.len);
            let (Some(region), Some(pair)) = (scratch.get_mut(..len), pair_of(member)) else {
                view.verdict[member.row] = Verdict::drop(reasons::CIPHER_MALFORMED).0;
                continue;
            };
            packet.read_at(member.at, region);
            let (text, sums) = self.text(member, pair, region);
            let mut text = [text];
            self.run(&mut text);
            self.settle(member, &text[0], sums, view);
            packet.write_at(member.at, &scratch[..len]);
        }
    }
}

/// The name of a connection's direction, by the headers of a packet that begin at `l3` and `l4`; and a number by which packets
/// of it differ: TCP's sequence number, or the identification of IPv4.
fn name(frame: &[u8], l3: usize, l4: usize, protocol: u8) -> Option<(Name, u64)> {
    let ip = frame.get(l3..)?;
    let upper = frame.get(l4..)?.first_chunk::<8>()?;
    let mut name = [0; NAME];
    name[0] = ip.first()? >> 4;
    name[1] = protocol;
    if name[0] == 4 {
        let addresses = ip.get(12..20)?;
        name[14..18].copy_from_slice(&addresses[..4]);
        name[30..34].copy_from_slice(&addresses[4..]);
    } else {
        name[2..34].copy_from_slice(ip.get(8..40)?);
    }
    name[34..].copy_from_slice(&upper[..4]);
    let number = match (name[0], IpProtocol(protocol)) {
        (_, IpProtocol::TCP) => {
            1 << 32 | u64::from(u32::from_be_bytes([upper[4], upper[5], upper[6], upper[7]]))
        }
        (4, _) => 2 << 32 | u64::from(be16(ip, 4)?),
        _ => 3 << 32,
    };
    Some((name, number))
}

impl Shade<Tables> for CipherShade {
    fn shade(&self, _: &mut Rows, _: &Tables) {}

    fn shade_packets(&self, rows: &mut Rows, packets: &mut [Packet], tables: &Tables) {
        let mut view = CipherColumns::view(rows);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        state.follow(tables.part(self.part));
        let State { master, keys, scratch } = state;
        let mut row = 0;
        while row < packets.len() {
            keys.begin();
            let (mut members, mut count) = ([NOBODY; GROUP], 0);
            while row < packets.len() && count < GROUP {
                let at = usize::from(view.cipher_at[row]);
                if at == 0 || !Verdict(view.verdict[row]).is_next() {
                    row += 1;
                    continue;
                }
                let (l3, l4) = (usize::from(view.cipher_l3[row]), usize::from(view.cipher_l4[row]));
                let named = name(packets[row].data(), l3, l4, view.cipher_protocol[row]);
                let slot = named.and_then(|(name, _)| match master.is_fixed() {
                    true => Some(0),
                    false => keys.find(&name, master),
                });
                match (named, slot) {
                    (Some((name, number)), Some(slot)) => {
                        let len = view.cipher_len[row] as usize;
                        members[count] = Member { row, slot, at, len, name, number };
                        count += 1;
                    }
                    // The keys of this group fill a set: the packet begins the next group.
                    (Some(_), None) if count > 0 => break,
                    _ => view.verdict[row] = Verdict::drop(reasons::CIPHER_MALFORMED).0,
                }
                row += 1;
            }
            self.group(&members[..count], packets, &mut view, (keys, master, scratch));
        }
    }

    fn kernels(&self) -> Option<KernelForm> {
        Some(kernels::form(self.mode, self.direction, self.vector, self.part.regions().start))
    }
}
