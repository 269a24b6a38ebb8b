//! Frames for tests, built with `etherparse`: correct by default, wrong where a test asks for it.
//!
//! ```
//! use testkit::frames::Frame;
//! let frame = Frame::new().vlan(7).ipv4("10.0.1.2", "10.0.2.2").ttl(1).udp(4000, 53, b"hello").bytes();
//! assert_eq!(frame.len(), 14 + 4 + 20 + 8 + 5);
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{
    IcmpEchoHeader, Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpFragOffset, IpNumber,
    Ipv4Header, Ipv4Options, Ipv6FlowLabel, Ipv6Header, TcpHeader, UdpHeader,
};

/// An Ethernet frame in the making; each step returns it, so that steps chain.
#[derive(Clone, Debug)]
pub struct Frame {
    source: [u8; 6],
    destination: [u8; 6],
    /// Tag protocol and tag control, outermost first.
    tags: Vec<(u16, u16)>,
    addresses: (IpAddr, IpAddr),
    ttl: u8,
    traffic_class: u8,
    identification: u16,
    dont_fragment: bool,
    more_fragments: bool,
    fragment_offset: u16,
    ipv4_options: Vec<u8>,
    /// Number and body after the next-header byte.
    extensions: Vec<(u8, Vec<u8>)>,
    transport: Transport,
    payload: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Transport {
    Raw(u8),
    Udp(u16, u16),
    Tcp(Box<TcpHeader>),
    Echo { reply: bool, id: u16, sequence: u16 },
}

impl Default for Frame {
    fn default() -> Self {
        Frame::new()
    }
}

impl Frame {
    /// From 02:00:00:00:01:02 to 02:00:00:00:01:01 (the left host to the router of `netns::Topology`), IPv4
    /// 10.0.1.2 to 10.0.2.2, TTL 64, protocol 253 (for experiments), no payload.
    pub fn new() -> Frame {
        Frame {
            source: [2, 0, 0, 0, 1, 2],
            destination: [2, 0, 0, 0, 1, 1],
            tags: Vec::new(),
            addresses: (Ipv4Addr::new(10, 0, 1, 2).into(), Ipv4Addr::new(10, 0, 2, 2).into()),
            ttl: 64,
            traffic_class: 0,
            identification: 1,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ipv4_options: Vec::new(),
            extensions: Vec::new(),
            transport: Transport::Raw(253),
            payload: Vec::new(),
        }
    }

    /// The MAC addresses.
    pub fn macs(mut self, source: [u8; 6], destination: [u8; 6]) -> Frame {
        (self.source, self.destination) = (source, destination);
        self
    }

    /// An 802.1Q tag inside of those so far.
    pub fn vlan(mut self, id: u16) -> Frame {
        self.tags.push((0x8100, id));
        self
    }

    /// An 802.1ad service tag (QinQ) inside of those so far.
    pub fn service_vlan(mut self, id: u16) -> Frame {
        self.tags.push((0x88a8, id));
        self
    }

    /// IPv4 addresses.
    ///
    /// # Panics
    /// Where they are none.
    pub fn ipv4(mut self, source: &str, destination: &str) -> Frame {
        let parse = |text: &str| text.parse::<Ipv4Addr>().expect("an IPv4 address").into();
        self.addresses = (parse(source), parse(destination));
        self
    }

    /// IPv6 addresses.
    ///
    /// # Panics
    /// Where they are none.
    pub fn ipv6(mut self, source: &str, destination: &str) -> Frame {
        let parse = |text: &str| text.parse::<Ipv6Addr>().expect("an IPv6 address").into();
        self.addresses = (parse(source), parse(destination));
        self
    }

    /// TTL or hop limit.
    pub fn ttl(mut self, ttl: u8) -> Frame {
        self.ttl = ttl;
        self
    }

    /// DSCP and ECN: IPv4's type of service, IPv6's traffic class.
    pub fn traffic_class(mut self, traffic_class: u8) -> Frame {
        self.traffic_class = traffic_class;
        self
    }

    /// IPv4 identification.
    pub fn identification(mut self, identification: u16) -> Frame {
        self.identification = identification;
        self
    }

    /// IPv4's don't-fragment flag.
    pub fn dont_fragment(mut self) -> Frame {
        self.dont_fragment = true;
        self
    }

    /// Makes an IPv4 fragment: offset in units of 8 bytes, and whether more follow.
    pub fn fragment(mut self, offset: u16, more: bool) -> Frame {
        (self.fragment_offset, self.more_fragments) = (offset, more);
        self
    }

    /// IPv4 options as they stand in the header, a multiple of 4 bytes and at most 40.
    pub fn ipv4_options(mut self, options: &[u8]) -> Frame {
        self.ipv4_options = options.to_vec();
        self
    }

    /// An IPv6 extension header after those so far: its number and what follows its next-header byte.
    pub fn extension(mut self, number: u8, body: &[u8]) -> Frame {
        self.extensions.push((number, body.to_vec()));
        self
    }

    /// UDP.
    pub fn udp(mut self, source: u16, destination: u16, payload: &[u8]) -> Frame {
        self.transport = Transport::Udp(source, destination);
        self.payload = payload.to_vec();
        self
    }

    /// TCP with the ACK flag.
    pub fn tcp(mut self, source: u16, destination: u16, sequence: u32, payload: &[u8]) -> Frame {
        let mut header = TcpHeader::new(source, destination, sequence, 65_535);
        header.ack = true;
        self.transport = Transport::Tcp(Box::new(header));
        self.payload = payload.to_vec();
        self
    }

    /// An echo request of the address family.
    pub fn echo_request(mut self, id: u16, sequence: u16, payload: &[u8]) -> Frame {
        self.transport = Transport::Echo { reply: false, id, sequence };
        self.payload = payload.to_vec();
        self
    }

    /// An echo reply of the address family.
    pub fn echo_reply(mut self, id: u16, sequence: u16, payload: &[u8]) -> Frame {
        self.transport = Transport::Echo { reply: true, id, sequence };
        self.payload = payload.to_vec();
        self
    }

    /// Any transport protocol; the payload begins with its header.
    pub fn raw(mut self, protocol: u8, payload: &[u8]) -> Frame {
        self.transport = Transport::Raw(protocol);
        self.payload = payload.to_vec();
        self
    }

    /// The frame without its frame check sequence, as long as it comes out.
    pub fn bytes(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend(self.destination);
        frame.extend(self.source);
        for (protocol, control) in &self.tags {
            frame.extend(protocol.to_be_bytes());
            frame.extend(control.to_be_bytes());
        }
        match self.addresses {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend(0x0800_u16.to_be_bytes());
                self.put_ipv4(&mut frame, source, destination);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend(0x86dd_u16.to_be_bytes());
                self.put_ipv6(&mut frame, source, destination);
            }
            _ => unreachable!("both addresses are set at once"),
        }
        frame
    }

    /// The frame with zeros at its end up to `length`, as Ethernet pads short ones to 60.
    pub fn padded(&self, length: usize) -> Vec<u8> {
        let mut frame = self.bytes();
        frame.resize(length.max(frame.len()), 0);
        frame
    }

    fn put_ipv4(&self, frame: &mut Vec<u8>, source: Ipv4Addr, destination: Ipv4Addr) {
        let (protocol, body) = self.transport(source.into(), destination.into());
        let length = u16::try_from(body.len()).expect("a payload that IPv4 can hold");
        let (source, destination) = (source.octets(), destination.octets());
        let mut header = Ipv4Header::new(length, self.ttl, IpNumber(protocol), source, destination)
            .expect("a payload that IPv4 can hold");
        header.options =
            Ipv4Options::try_from(self.ipv4_options.as_slice()).expect("options of whole words");
        header.set_payload_len(body.len()).expect("a payload that IPv4 can hold");
        header.dscp = etherparse::IpDscp::try_new(self.traffic_class >> 2).expect("six bits");
        header.ecn = etherparse::IpEcn::try_new(self.traffic_class & 3).expect("two bits");
        header.identification = self.identification;
        header.dont_fragment = self.dont_fragment;
        header.more_fragments = self.more_fragments;
        header.fragment_offset =
            IpFragOffset::try_new(self.fragment_offset).expect("thirteen bits");
        header.header_checksum = header.calc_header_checksum();
        frame.extend(header.to_bytes());
        frame.extend(body);
    }

    fn put_ipv6(&self, frame: &mut Vec<u8>, source: Ipv6Addr, destination: Ipv6Addr) {
        let (protocol, body) = self.transport(source.into(), destination.into());
        let mut extensions = Vec::new();
        for (at, (_, bytes)) in self.extensions.iter().enumerate() {
            extensions.push(self.extensions.get(at + 1).map_or(protocol, |(number, _)| *number));
            extensions.extend(bytes);
        }
        let length =
            u16::try_from(extensions.len() + body.len()).expect("a payload that IPv6 can hold");
        let header = Ipv6Header {
            traffic_class: self.traffic_class,
            flow_label: Ipv6FlowLabel::ZERO,
            payload_length: length,
            next_header: IpNumber(self.extensions.first().map_or(protocol, |(number, _)| *number)),
            hop_limit: self.ttl,
            source: source.octets(),
            destination: destination.octets(),
        };
        frame.extend(header.to_bytes());
        frame.extend(extensions);
        frame.extend(body);
    }

    /// Protocol number, and transport header with payload.
    fn transport(&self, source: IpAddr, destination: IpAddr) -> (u8, Vec<u8>) {
        let mut body = Vec::new();
        let payload = &self.payload;
        let fits = "a payload that the protocol can hold";
        let number = match &self.transport {
            Transport::Raw(number) => *number,
            Transport::Udp(from, to) => {
                let header = match (source, destination) {
                    (IpAddr::V4(s), IpAddr::V4(d)) => {
                        UdpHeader::with_ipv4_checksum(*from, *to, &ip4(s, d, 17), payload)
                            .expect(fits)
                    }
                    (s, d) => UdpHeader::with_ipv6_checksum(*from, *to, &ip6(s, d, 17), payload)
                        .expect(fits),
                };
                body.extend(header.to_bytes());
                17
            }
            Transport::Tcp(header) => {
                let mut header = header.as_ref().clone();
                header.checksum = match (source, destination) {
                    (IpAddr::V4(s), IpAddr::V4(d)) => {
                        header.calc_checksum_ipv4(&ip4(s, d, 6), payload).expect(fits)
                    }
                    (s, d) => header.calc_checksum_ipv6(&ip6(s, d, 6), payload).expect(fits),
                };
                body.extend(header.to_bytes());
                6
            }
            Transport::Echo { reply, id, sequence } => {
                let echo = IcmpEchoHeader { id: *id, seq: *sequence };
                match (source, destination) {
                    (IpAddr::V6(source), IpAddr::V6(destination)) => {
                        let kind = match reply {
                            true => Icmpv6Type::EchoReply(echo),
                            false => Icmpv6Type::EchoRequest(echo),
                        };
                        let (source, destination) = (source.octets(), destination.octets());
                        let header =
                            Icmpv6Header::with_checksum(kind, source, destination, payload);
                        body.extend(header.expect(fits).to_bytes());
                        58
                    }
                    _ => {
                        let kind = match reply {
                            true => Icmpv4Type::EchoReply(echo),
                            false => Icmpv4Type::EchoRequest(echo),
                        };
                        body.extend(Icmpv4Header::with_checksum(kind, payload).to_bytes());
                        1
                    }
                }
            }
        };
        body.extend(payload);
        (number, body)
    }
}

/// Only the addresses of these headers enter a checksum.
fn ip4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8) -> Ipv4Header {
    let (source, destination) = (source.octets(), destination.octets());
    Ipv4Header::new(0, 64, IpNumber(protocol), source, destination).expect("an empty payload")
}

fn ip6(source: IpAddr, destination: IpAddr, protocol: u8) -> Ipv6Header {
    let octets = |address: IpAddr| match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
    };
    Ipv6Header {
        next_header: IpNumber(protocol),
        source: octets(source),
        destination: octets(destination),
        ..Ipv6Header::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{SlicedPacket, TransportSlice};

    #[test]
    fn every_kind_parses_as_what_it_is() {
        let v4 = Frame::new().vlan(5);
        let v6 = Frame::new().service_vlan(5).vlan(6).ipv6("fd00:1::2", "fd00:2::2");
        for base in [v4, v6] {
            let udp = base.clone().udp(1, 2, b"x").bytes();
            let parsed = SlicedPacket::from_ethernet(&udp).unwrap();
            assert!(
                matches!(parsed.transport, Some(TransportSlice::Udp(u)) if u.destination_port() == 2)
            );
            let tcp = base.clone().tcp(1, 2, 3, b"x").bytes();
            let parsed = SlicedPacket::from_ethernet(&tcp).unwrap();
            assert!(matches!(parsed.transport, Some(TransportSlice::Tcp(t)) if t.ack()));
            for frame in
                [base.clone().echo_request(1, 2, b"x"), base.clone().echo_reply(1, 2, b"x")]
            {
                let bytes = frame.bytes();
                let parsed = SlicedPacket::from_ethernet(&bytes).unwrap();
                let transport = parsed.transport;
                assert!(matches!(
                    transport,
                    Some(TransportSlice::Icmpv4(_) | TransportSlice::Icmpv6(_))
                ));
            }
        }
    }

    #[test]
    fn options_extensions_and_fragments_stand_where_they_should() {
        let frame =
            Frame::new().ipv4_options(&[1, 1, 1, 0]).fragment(3, true).raw(17, b"abcdefgh").bytes();
        let (header, rest) = Ipv4Header::from_slice(&frame[14..]).unwrap();
        assert_eq!(header.options.as_slice(), [1, 1, 1, 0]);
        assert_eq!((header.fragment_offset.value(), header.more_fragments), (3, true));
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(rest, b"abcdefgh");
        let hop_by_hop = [0, 1, 4, 0, 0, 0, 0];
        let frame =
            Frame::new().ipv6("fd00:1::2", "fd00:2::2").extension(0, &hop_by_hop).udp(1, 2, b"");
        let bytes = frame.bytes();
        assert_eq!((bytes[14 + 6], bytes[14 + 40], bytes.len()), (0, 17, 14 + 40 + 8 + 8));
        assert_eq!(frame.padded(100).len(), 100);
    }
}
