//! Packets in two steps: what depends on the order of packets, and what a batch may do later, elsewhere, and again.
//!
//! ```text
//!  in order     Number::prepare: header, vector, padding     Inbound::number: whole number, window
//!  in batches   Outbound::encrypt ─▶ seal_batch              Inbound::open_as ─▶ open_batch_deferred
//!  in order     –                                            Inbound::settle: window again, trailer
//! ```
//!
//! What is in between is a function of the packet's bytes and the key. A device may do it; if that fails, it is done again from
//! the same bytes: a number stays that of one packet.

use std::ops::Range;

use super::{
    HEADER_LEN, Header, Inbound, Number, Open, OpenError, Opened, Outbound, Seal, SealError,
    TRAILER_LEN, Trailer, front_len, open_batch,
};
use crate::batch::{Failure, Request, seal_all};
use crate::suite::Key;

/// A packet that has all but encryption and check value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// Where it is in its buffer, from the SPI to the end of the check value.
    pub packet: Range<usize>,
    /// The upper half of its number; 0 where numbers have 32 bits.
    pub high: u32,
}

impl Number<'_> {
    /// What [`Number::seal`] does before encryption: header, initialisation vector, padding and trailer. [`Outbound::encrypt`] of
    /// the same association goes on.
    ///
    /// # Errors
    ///
    /// The buffer has no room. The number is used up.
    pub fn prepare(
        self,
        buffer: &mut [u8],
        payload: Range<usize>,
        next_header: u8,
        tfc_len: usize,
    ) -> Result<Prepared, SealError> {
        let value = self.value;
        let number = Number { association: self.association, value };
        let mut seal = number.seal(buffer, payload, next_header, tfc_len);
        if let Some(error) = seal.error {
            return Err(error);
        }
        seal.request.write_iv();
        Ok(Prepared { packet: seal.packet, high: seal.request.sequence_high.unwrap_or(0) })
    }
}

impl Outbound {
    /// Its keys.
    #[inline]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// A packet of this association that was prepared, from the SPI to the end of its check value, for
    /// [`seal_batch`](super::seal_batch): the same bytes give the same bytes.
    pub fn encrypt<'a>(&'a self, packet: &'a mut [u8], high: u32) -> Seal<'a> {
        let suite = self.suite();
        let around = front_len(suite) + suite.icv_len();
        let range = 0..packet.len();
        let text_len = packet.len().checked_sub(around);
        let low = Header::parse(packet).map_or(0, |header| header.number);
        let mut request = Request::new(&self.key, packet, HEADER_LEN, text_len.unwrap_or(0));
        match text_len {
            Some(_) => request.read_iv(),
            None => request.result = Err(Failure::Layout),
        }
        request.sequence_high = self.is_extended.then_some(high);
        Seal { request, packet: range, number: u64::from(high) << 32 | u64::from(low), error: None }
    }
}

impl Inbound {
    /// Its keys.
    #[inline]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The whole number of a packet, as the window stands.
    ///
    /// # Errors
    ///
    /// The packet is not to be opened.
    pub fn number(&self, packet: &[u8]) -> Result<u64, OpenError> {
        self.check(packet).map(|checked| checked.0)
    }

    /// A packet with this whole number, whatever the window says, for [`open_batch_deferred`](super::open_batch_deferred).
    /// [`Inbound::settle`] goes on.
    pub fn open_as<'a>(&'a self, packet: &'a mut [u8], number: u64) -> Open<'a> {
        let around = front_len(self.suite()) + self.suite().icv_len();
        let text_len = packet.len().checked_sub(around).filter(|len| *len >= TRAILER_LEN);
        let mut request = Request::new(&self.key, packet, HEADER_LEN, text_len.unwrap_or(0));
        request.sequence_high = self.is_extended.then_some((number >> 32) as u32);
        if text_len.is_none() {
            request.result = Err(Failure::Layout);
        }
        let result = Err(OpenError::Authentication);
        Open { association: self, request, number, result, is_settled: false }
    }

    /// What is in a packet that was opened with this number: in the order of packets. The window is asked first, as if the packet
    /// was opened only now: what is replayed is so whether it is genuine or not, and one that is not by this number, and now has
    /// another, is opened by that. What the window refuses is encrypted again, so that it is as it came.
    ///
    /// # Errors
    ///
    /// Why it is dropped.
    pub fn settle(
        &self,
        packet: &mut [u8],
        number: u64,
        is_genuine: bool,
    ) -> Result<Opened, OpenError> {
        let refused = match self.number(packet) {
            // By another number, it would not be genuine.
            Ok(now) if now != number => Err(OpenError::Authentication),
            now => now.map(|_| ()),
        };
        if !is_genuine && refused == Err(OpenError::Authentication) {
            let mut alone = [self.open(packet)];
            open_batch(&mut alone);
            return alone[0].result();
        }
        if !is_genuine {
            return Err(refused.err().unwrap_or(OpenError::Authentication));
        }
        if let Err(error) = refused.and_then(|()| self.accept(number)) {
            self.close(packet, number);
            return Err(error);
        }
        let at = front_len(self.suite());
        let end = packet.len().saturating_sub(self.suite().icv_len());
        let text = packet.get(at..end).ok_or(OpenError::Truncated)?;
        let trailer = Trailer::parse(text).ok_or(OpenError::Padding)?;
        let payload = at..at + trailer.payload_len;
        Ok(Opened { payload, next_header: trailer.next_header, number })
    }

    /// Makes of a packet that was opened with this number what came.
    pub fn close(&self, packet: &mut [u8], number: u64) {
        let mut open = self.open_as(packet, number);
        if open.request.result.is_ok() {
            open.request.read_iv();
            seal_all(std::slice::from_mut(&mut open.request));
        }
    }
}

impl Open<'_> {
    /// After [`open_batch_deferred`](super::open_batch_deferred): whether the packet is genuine, and so decrypted.
    pub fn is_genuine(&self) -> bool {
        matches!(self.result, Ok(_) | Err(OpenError::Padding))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{open_batch, open_batch_deferred, seal_batch};
    use super::*;
    use crate::window::Replay;
    use crate::{Secret, Suite};

    fn key(suite: Suite) -> Key {
        let of = |len: usize| Secret::new((0..len as u8).map(|byte| byte ^ 0x35).collect());
        Key::new(suite, &of(suite.encryption_key_len()), &of(suite.authentication_key_len()))
            .unwrap()
    }

    /// Whatever the suite, two steps are one; and the second one twice gives the same bytes.
    #[test]
    fn two_steps_give_the_bytes_of_one() {
        for suite in Suite::all() {
            for is_extended in [false, true] {
                for len in [0, 1, 13, 64, 1400] {
                    let resume =
                        || Outbound::resume(key(suite), 0x1000, is_extended, 0xffff_fff0).unwrap();
                    let (one, two) = (resume(), resume());
                    let mut buffer = vec![0xee; len + 100];
                    buffer[40..40 + len].fill(7);
                    let mut other = buffer.clone();
                    let mut seals =
                        [one.take(1).next().unwrap().seal(&mut buffer, 40..40 + len, 4, 3)];
                    seal_batch(&mut seals);
                    let packet = seals[0].result().unwrap();
                    let number = two.take(1).next().unwrap();
                    let prepared = number.prepare(&mut other, 40..40 + len, 4, 3).unwrap();
                    assert_eq!(prepared.packet, packet);
                    let mut again = other.clone();
                    for bytes in [&mut other, &mut again] {
                        let place = &mut bytes[prepared.packet.clone()];
                        let mut seals = [two.encrypt(place, prepared.high)];
                        seal_batch(&mut seals);
                        seals[0].result().unwrap();
                    }
                    assert!(other == buffer && again == buffer, "{suite} {is_extended} {len}");

                    let opener = || Inbound::new(key(suite), 0x1000, is_extended, 64).unwrap();
                    let (one, two) = (opener(), opener());
                    let came = buffer[packet].to_vec();
                    let mut packet = came.clone();
                    let mut other = packet.clone();
                    let mut opens = [one.open(&mut packet)];
                    open_batch(&mut opens);
                    let expected = opens[0].result().unwrap();
                    let number = two.number(&other).unwrap();
                    let mut opens = [two.open_as(&mut other, number)];
                    open_batch_deferred(&mut opens);
                    assert!(opens[0].is_genuine());
                    assert_eq!(two.settle(&mut other, number, true), Ok(expected));
                    assert!(other == packet);
                    let replayed = Err(OpenError::Replay(Replay::Seen));
                    assert_eq!(two.settle(&mut other, number, true), replayed);
                    assert!(other == came, "{suite}: a replayed packet is not as it came");
                    assert_eq!(two.settle(&mut other, number, false), replayed);
                    // Both of one batch.
                    let three = opener();
                    let (mut first, mut second) = (came.clone(), came.clone());
                    let mut opens = [three.open(&mut first), three.open(&mut second)];
                    open_batch(&mut opens);
                    assert!(opens[0].result().is_ok());
                    assert_eq!(opens[1].result(), replayed);
                    assert!(second == came, "{suite}: a replayed packet is not as it came");
                }
            }
        }
    }

    #[test]
    fn what_is_too_short_is_refused() {
        let suite = Suite::all().next().unwrap();
        let own = Outbound::new(key(suite), 0x1000, false).unwrap();
        let mut seals = [own.encrypt(&mut [], 0)];
        seal_batch(&mut seals);
        assert!(seals[0].result().is_err());
        let own = Inbound::new(key(suite), 0x1000, false, 64).unwrap();
        let mut bytes = [0; 12];
        let mut opens = [own.open_as(&mut bytes, 1)];
        open_batch_deferred(&mut opens);
        assert!(!opens[0].is_genuine());
        assert_eq!(own.number(&[0; 7]), Err(OpenError::Truncated));
    }
}
