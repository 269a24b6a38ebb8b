//! Addresses and ports of subscribers by arithmetic (RFC 7422 §2): who had an outside address and port is computed, so
//! that nothing needs to be logged.
//!
//! ```text
//!  subscriber n of the inside prefix ─▶ outside address n mod A, block n div A of its ports
//! ```

use std::ops::RangeInclusive;

/// How subscribers and outside ports belong together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// First inside address, host order, and how many there are.
    inside: (u32, u32),
    /// First outside address, host order, and how many there are.
    outside: (u32, u32),
    /// First outside port.
    first: u16,
    /// Ports of each subscriber.
    size: u16,
}

/// Why subscribers do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// Subscribers that share an outside address.
    pub per_address: u32,
    /// Ports that they share.
    pub ports: u32,
}

impl Blocks {
    /// Gives each subscriber an equal share of `ports`; those that remain are not used.
    ///
    /// # Errors
    /// Subscribers of an address outnumber its ports.
    pub fn new(
        inside: (u32, u32),
        outside: (u32, u32),
        ports: &RangeInclusive<u16>,
    ) -> Result<Self, TooMany> {
        let per_address = inside.1.div_ceil(outside.1.max(1)).max(1);
        let count = u32::from(*ports.end()).saturating_sub(u32::from(*ports.start())) + 1;
        match count / per_address {
            0 => Err(TooMany { per_address, ports: count }),
            size => {
                let size = size.min(u32::from(u16::MAX)) as u16;
                Ok(Self { inside, outside, first: *ports.start(), size })
            }
        }
    }

    /// Ports of each subscriber.
    pub const fn size(&self) -> u16 {
        self.size
    }

    /// The outside addresses.
    pub fn addresses(&self) -> impl Iterator<Item = u32> {
        self.outside.0..self.outside.0 + self.outside.1
    }

    /// Whether an address is one of the outside addresses.
    pub const fn has(&self, outside: u32) -> bool {
        outside >= self.outside.0 && outside - self.outside.0 < self.outside.1
    }

    /// The outside address of a subscriber, and its ports; `None` for one of another prefix.
    pub fn of(&self, inside: u32) -> Option<(u32, RangeInclusive<u16>)> {
        let number = inside.checked_sub(self.inside.0).filter(|number| *number < self.inside.1)?;
        let (at, block) = (number % self.outside.1, number / self.outside.1);
        let first = u32::from(self.first) + block * u32::from(self.size);
        let last = first + u32::from(self.size) - 1;
        Some((self.outside.0 + at, first as u16..=last as u16))
    }

    /// The subscribers who share an outside address, in the order of their ports.
    pub fn subscribers(&self, outside: u32) -> impl Iterator<Item = u32> {
        let at = outside.checked_sub(self.outside.0).filter(|at| *at < self.outside.1);
        let (first, count) = self.inside;
        let step = self.outside.1.max(1) as usize;
        at.into_iter().flat_map(move |at| (at..count).step_by(step)).map(move |own| first + own)
    }

    /// The subscriber who has a port of an outside address.
    pub fn subscriber(&self, outside: u32, port: u16) -> Option<u32> {
        let at = outside.checked_sub(self.outside.0).filter(|at| *at < self.outside.1)?;
        let block = u32::from(port.checked_sub(self.first)? / self.size);
        let number = block.checked_mul(self.outside.1)?.checked_add(at)?;
        (number < self.inside.1).then(|| self.inside.0 + number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn subscribers_share_addresses_and_ports_evenly() {
        // 256 subscribers of 198.51.100.0/24 behind the two addresses of 192.0.2.0/31: 128 of them share an address.
        let inside = u32::from_be_bytes([198, 51, 100, 0]);
        let outside = u32::from_be_bytes([192, 0, 2, 0]);
        let blocks = Blocks::new((inside, 256), (outside, 2), &(1024..=65_535)).unwrap();
        assert_eq!(blocks.size(), 504);
        assert_eq!(blocks.of(inside), Some((outside, 1024..=1527)));
        assert_eq!(blocks.of(inside + 3), Some((outside + 1, 1528..=2031)));
        assert_eq!(blocks.subscriber(outside + 1, 2031), Some(inside + 3));
        assert_eq!(blocks.of(inside + 256), None);
        let crowd = Blocks::new((inside, 256), (outside, 1), &(1..=255));
        assert_eq!(crowd, Err(TooMany { per_address: 256, ports: 255 }));
    }

    proptest! {
        #[test]
        fn a_port_leads_back_to_its_subscriber(
            base in 0u32..1 << 30, log in 0u32..12, count in 1u32..300, first in 1u16..30_000, at: u32,
        ) {
            let inside = (base, 1 << log);
            let outside = (base + (1 << 30), count);
            let Ok(blocks) = Blocks::new(inside, outside, &(first..=u16::MAX)) else {
                return Ok(());
            };
            let host = base + at % (1 << log);
            let (address, ports) = blocks.of(host).unwrap();
            prop_assert!(blocks.subscribers(address).any(|own| own == host));
            let each = blocks.subscribers(address).map(|own| blocks.of(own).unwrap());
            let ports_of: Vec<_> = each.map(|own| (own.0, *own.1.start())).collect();
            prop_assert!(ports_of.iter().all(|own| own.0 == address) && ports_of.is_sorted());
            for port in [*ports.start(), *ports.end()] {
                prop_assert_eq!(blocks.subscriber(address, port), Some(host));
            }
            prop_assert_eq!(ports.len(), usize::from(blocks.size()));
            prop_assert_ne!(blocks.subscriber(address, ports.end().saturating_add(1)), Some(host).filter(|_| *ports.end() < u16::MAX));
        }
    }
}
