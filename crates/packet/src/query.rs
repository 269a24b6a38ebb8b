//! Queries of ICMP and ICMPv6, and their answers: both have an identifier, by which the answer finds who asked.
//!
//! | kind | query | answer |
//! | --- | --- | --- |
//! | echo (RFC 792; RFC 4443 §4) | 8; 128 | 0; 129 |
//! | timestamp (RFC 792) | 13 | 14 |
//! | information (RFC 792) | 15 | 16 |
//! | address mask (RFC 950) | 17 | 18 |
//!
//! Identifiers of different kinds have nothing to do with one another.
//!
//! Pure functions: any thread.

use crate::IpProtocol;

/// What is asked for. Numbers fit into three bits, and 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Query {
    /// An echo.
    Echo = 1,
    /// The time.
    Timestamp = 2,
    /// The number of the network.
    Information = 3,
    /// The mask of the network.
    AddressMask = 4,
}

impl Query {
    /// The kind of a message of ICMP or ICMPv6, and whether it is the answer; `None` if it is neither query nor answer.
    #[inline]
    pub const fn of(protocol: IpProtocol, icmp_type: u8) -> Option<(Query, bool)> {
        match (protocol, icmp_type) {
            (IpProtocol::ICMP, 8) | (IpProtocol::ICMPV6, 128) => Some((Query::Echo, false)),
            (IpProtocol::ICMP, 0) | (IpProtocol::ICMPV6, 129) => Some((Query::Echo, true)),
            (IpProtocol::ICMP, 13 | 14) => Some((Query::Timestamp, icmp_type == 14)),
            (IpProtocol::ICMP, 15 | 16) => Some((Query::Information, icmp_type == 16)),
            (IpProtocol::ICMP, 17 | 18) => Some((Query::AddressMask, icmp_type == 18)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_and_its_answer_are_of_one_kind() {
        for (protocol, query, answer) in [
            (IpProtocol::ICMP, 8, 0),
            (IpProtocol::ICMP, 13, 14),
            (IpProtocol::ICMP, 15, 16),
            (IpProtocol::ICMP, 17, 18),
            (IpProtocol::ICMPV6, 128, 129),
        ] {
            let (kind, is_answer) = Query::of(protocol, query).unwrap();
            assert_eq!((Query::of(protocol, answer), is_answer), (Some((kind, true)), false));
        }
        let kinds = |protocol| (0..=255).filter(|of| Query::of(protocol, *of).is_some()).count();
        assert_eq!((kinds(IpProtocol::ICMP), kinds(IpProtocol::ICMPV6)), (8, 2));
        assert_eq!(kinds(IpProtocol::UDP), 0);
    }
}
