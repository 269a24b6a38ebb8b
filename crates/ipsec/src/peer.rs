//! Where the peer of associations in UDP is: one value for all of them.
//!
//! ```text
//!  inbound ── authentic packet from elsewhere ─▶ Peer::heard ─▶ place ◀─ Peer::place ── outbound
//! ```
//!
//! An address translator between may give a peer another address or port at any time (RFC 3947 §4). Several workers open its
//! packets at a time, by several associations while keys change, and one place must come out: that of the packet with the
//! highest number of the newest association. So address, port, and what they come from are changed together, under a lock. The
//! lock is not taken while the peer stays where it is: `tag`, a hash of the place, is compared before.
//!
//! `tag` is written under the lock and after the place. A thread that reads an older one takes the lock and looks there; one that
//! reads its own place's has a packet from where the peer was a moment ago, and nothing to change. Two places with one hash of
//! 64 bits would be taken for one: only the peer could choose them, and only its own packets would go astray.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::{Words, words};

/// Address and port of a peer, and the packet that said so.
#[derive(Debug, Clone, Copy)]
struct Place {
    address: IpAddr,
    port: u16,
    /// Which association: those that were added later have a higher one.
    generation: u64,
    /// The number of the packet.
    number: u64,
}

/// A peer.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    /// That of the place; 0: none is known.
    tag: AtomicU64,
    place: RwLock<Option<Place>>,
}

/// The hash of a place; never 0.
pub(crate) fn tag(address: Words, port: u16) -> u64 {
    let mut all = 0x9e37_79b9_7f4a_7c15u64 ^ u64::from(port);
    for word in address {
        let product = u128::from(all ^ word) * 0xd6e8_feb8_6659_fd93;
        all = (product >> 64) as u64 ^ product as u64 ^ word.rotate_left(32);
    }
    all | 1
}

impl Peer {
    /// That of the place that is known; 0: none.
    pub(crate) fn tag(&self) -> u64 {
        self.tag.load(Ordering::Acquire)
    }

    /// Where it is, if that is known.
    pub(crate) fn place(&self) -> Option<(IpAddr, u16)> {
        let place = self.place.read().unwrap_or_else(PoisonError::into_inner);
        place.map(|own| (own.address, own.port))
    }

    /// Packet `number` of association `generation` came from here. `Some` if the place is another one than before, with the one
    /// before; `None` also if a newer packet has said where the peer is.
    pub(crate) fn heard(
        &self,
        (generation, number): (u64, u64),
        address: IpAddr,
        port: u16,
    ) -> Option<Option<(IpAddr, u16)>> {
        let mut place = self.place.write().unwrap_or_else(PoisonError::into_inner);
        let before = *place;
        if let Some(own) = before
            && ((own.address, own.port) == (address, port)
                || (own.generation, own.number) > (generation, number))
        {
            return None;
        }
        *place = Some(Place { address, port, generation, number });
        self.tag.store(tag(words(address).1, port), Ordering::Release);
        Some(before.map(|own| (own.address, own.port)))
    }

    /// Nothing is known any more: whoever adds associations has said where it is.
    pub(crate) fn forget(&self) {
        let mut place = self.place.write().unwrap_or_else(PoisonError::into_inner);
        *place = None;
        self.tag.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    /// Workers with packets of two associations from different places, in any order: the newest one decides.
    #[test]
    fn the_newest_packet_of_the_newest_association_decides() {
        for _ in 0..200 {
            let peer = Arc::new(Peer::default());
            let barrier = Arc::new(Barrier::new(4));
            let threads = (0..4u8).map(|worker| {
                let (peer, barrier) = (peer.clone(), barrier.clone());
                std::thread::spawn(move || {
                    barrier.wait();
                    for step in 0..50u64 {
                        let generation = 1 + u64::from(worker / 2);
                        let number = 1 + step * 2 + u64::from(worker % 2);
                        let address = IpAddr::from([192, 0, 2, worker]);
                        peer.heard((generation, number), address, number as u16);
                    }
                })
            });
            threads.collect::<Vec<_>>().into_iter().for_each(|own| own.join().unwrap());
            let place = peer.place().unwrap();
            assert_eq!(place, (IpAddr::from([192, 0, 2, 3]), 100));
            assert_eq!(peer.tag(), tag(words(place.0).1, place.1));
        }
    }

    #[test]
    fn a_place_that_is_forgotten_can_be_heard_of_again() {
        let peer = Peer::default();
        let home = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(peer.heard((1, 5), home, 4500), Some(None));
        assert_eq!(peer.heard((1, 6), home, 4500), None);
        assert_eq!(peer.heard((1, 4), home, 7), None, "older");
        peer.forget();
        assert_eq!((peer.place(), peer.tag()), (None, 0));
        assert_eq!(peer.heard((1, 4), home, 7), Some(None));
    }
}
