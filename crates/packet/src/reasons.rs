//! Drop reasons of the link layer and of IP, shared by the applications that read these headers.

chunk::drop_reasons! {
    /// What is wrong with a frame or an IP packet by itself, or with the interface or link that it would use.
    pub const BLOCK: 1, "link layer and IP";

    // Link layer
    TRUNCATED = 0, "truncated", "the frame ends within a header",
        "Over captures: capture whole frames (`tcpdump -s 0`). Live: capture at the sender, which sends broken frames, or a device on the path truncates them.";
    NOT_FOR_US = 1, "not_for_us", "the destination MAC address is not the port's",
        "Normal behind a hub or a mirror port. To process such frames, set `promiscuous = true` at the port. Otherwise a neighbour has a stale entry for its address.";
    VLAN_UNKNOWN = 2, "vlan_unknown", "no interface or face accepts frames with this VLAN tag",
        "Add a port with `parent` and `vlan` for it (in a router), or remove the VLAN from the link.";
    VLAN_TRUNCATED = 3, "vlan_truncated", "the frame ends within a VLAN tag",
        "Find the sender (`ctl capture drops -w drops.pcapng`): it sends broken frames.";
    VLAN_TOO_MANY = 4, "vlan_too_many", "more than two VLAN tags",
        "Remove a tag on the path: at most two are supported.";
    SOURCE_MAC_GROUP = 5, "source_mac_group", "the source MAC address is a group address, which no station may use",
        "Find the sender: it is broken, or it sends such frames on purpose.";
    INTERFACE_DOWN = 6, "interface_down", "the interface is down, or there is none on this port",
        "Set the interface up (`ip link set INTERFACE up`) and check its cable (`ctl show interfaces`).";
    ETHERTYPE_UNKNOWN = 7, "ethertype_unknown", "this EtherType is not forwarded, and no host can receive the frame",
        "Normal for LLDP and the like. Give the port a twin if Linux should receive these frames.";
    ARP_MALFORMED = 8, "arp_malformed", "the ARP packet is malformed",
        "Find the sender by its MAC address (`ctl capture drops -w drops.pcapng`): it is broken, or it attacks its neighbours.";
    ND_MALFORMED = 9, "nd_malformed", "the neighbour discovery packet is malformed",
        "Find the sender by its MAC address (`ctl capture drops -w drops.pcapng`): it is broken, or it attacks its neighbours.";
    // IP header, RFC 1812 section 5.2.2
    IP_BAD_VERSION = 10, "ip_bad_version", "the IP version contradicts the EtherType",
        "Find the sender (`ctl capture drops -w drops.pcapng`): it sends broken packets.";
    IP_BAD_HEADER_LENGTH = 11, "ip_bad_header_length", "the IPv4 header length is below 20 bytes or beyond the packet",
        "Find the sender (`ctl capture drops -w drops.pcapng`): it sends broken packets.";
    IP_BAD_TOTAL_LENGTH = 12, "ip_bad_total_length", "the IP total length is below the header's or beyond the frame",
        "Capture at the sender: it sends broken packets, or a device on the path truncates them.";
    IP_BAD_CHECKSUM = 13, "ip_bad_checksum", "the IPv4 header checksum is wrong",
        "Over a capture taken on the sender, use `run -k none`. Live, switch transmit checksum offload off at a sender on this host; otherwise check the link.";
    IP_MARTIAN_SOURCE = 14, "ip_martian_source", "the source address must not appear on the wire",
        "Find the sender: its address is misconfigured or forged.";
    IP_MARTIAN_DESTINATION = 15, "ip_martian_destination", "the destination address must not be forwarded",
        "Find the sender: it sends to an address that must not appear on a network.";
    IP_BAD_OPTIONS = 16, "ip_bad_options", "an IPv4 option is longer than the header, or has no length",
        "Find the sender (`ctl capture drops -w drops.pcapng`): it sends broken packets.";
    IP6_EXTENSION_HEADERS = 17, "ip6_extension_headers", "an IPv6 extension header extends beyond the end of the packet",
        "Find the sender (`ctl capture drops -w drops.pcapng`): it sends broken packets.";
    IP6_EXTENSION_LOOP = 18, "ip6_extension_loop", "an IPv6 extension header occurs too often, or hop-by-hop options are not first",
        "Find the sender: no ordinary system sends such packets.";
    IP6_EXTENSIONS_TOO_MANY = 19, "ip6_extensions_too_many", "too many IPv6 extension headers",
        "Find the sender: no ordinary system sends such packets.";
    IP_ZERO_LENGTH_FRAGMENT = 20, "ip_zero_length_fragment", "a fragment without payload",
        "Find the sender: it is broken, or it attacks the receiver's reassembly.";
    IP_OVERLONG_FRAGMENT = 21, "ip_overlong_fragment", "a fragment that ends beyond 65,535 bytes",
        "Find the sender: it is broken, or it attacks the receiver's reassembly.";
    // The next link
    TOO_BIG = 22, "too_big", "larger than the MTU of the next link",
        "Nothing, if the sender then sends smaller packets. Otherwise let ICMPv6 errors through to it, or raise the MTU of the next link.";
    NEIGHBOUR_FAILED = 23, "neighbour_failed", "the neighbour did not answer, or is not known",
        "Check that the neighbour is up and in the subnet (`ctl show neighbours`).";
    // Packets for the machine itself
    HOST_ARP_RATE = 24, "host_arp_rate", "more ARP packets for Linux than `arp` of the port's `host` allows",
        "Find the sender (`ctl capture drops -w drops.pcapng`): a loop in the link or a scan. Raise `arp` in `[port.NAME.host]` for a link with very many hosts.";
    HOST_ND_RATE = 25, "host_nd_rate", "more neighbour discovery packets for Linux than `nd` of the port's `host` allows",
        "Find the sender (`ctl capture drops -w drops.pcapng`): a loop in the link or a scan. Raise `nd` in `[port.NAME.host]` for a link with very many hosts.";
    HOST_ROUTING_RATE = 26, "host_routing_rate", "more packets of routing protocols for Linux than `routing` of the port's `host` allows",
        "Drop those of strangers with rules on their sources (`[[rule]]`). Raise `routing` in `[port.NAME.host]` if routing daemons need more.";
    HOST_OTHER_RATE = 27, "host_other_rate", "more packets for Linux than `other` of the port's `host` allows",
        "Normal during a flood or a scan of the router's addresses. Raise `other` in `[port.NAME.host]` if programs on this machine need more.";
}
