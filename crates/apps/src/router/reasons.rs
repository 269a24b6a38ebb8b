//! Drop reasons of the router alone (RFC 1812).

chunk::drop_reasons! {
    /// What the router drops for.
    pub const BLOCK: 3, "router";

    TTL_EXPIRED = 0, "ttl_expired", "the TTL or hop limit ran out",
        "Normal for traceroute. Otherwise look for a routing loop.";
    MULTICAST_NOT_FORWARDED = 1, "multicast_not_forwarded", "multicast is not forwarded",
        "Nothing: this router forwards no multicast. `mode = \"switch\"` does.";
    BROADCAST_NOT_FORWARDED = 2, "broadcast_not_forwarded", "a link-layer broadcast or multicast is not forwarded",
        "Nothing: broadcasts stay on their link.";
    LINK_LOCAL_NOT_FORWARDED = 3, "link_local_not_forwarded", "a link-local address is not forwarded",
        "Give the hosts routable addresses if they need to communicate beyond the link.";
    FRAGMENTATION_NEEDED = 4, "fragmentation_needed", "larger than the MTU, and fragmentation is not allowed",
        "Nothing, if the sender then sends smaller packets. Otherwise let ICMP errors through to it, or raise the MTU of the next link.";
    SOURCE_ROUTE = 5, "source_route", "source routing is not honoured",
        "Nothing: such packets are dropped for security.";
    NEIGHBOUR_QUEUE_FULL = 6, "neighbour_queue_full", "too many packets wait for this neighbour, or for all neighbours from this port",
        "A few are normal with the first packets. Otherwise check whether the neighbour answers (`ctl show neighbours`), or raise `arp_queue_packets` and `arp_queue_total_packets` in `[router]`.";
    CONSUMED = 7, "consumed", "control traffic that the router itself answered or learned from",
        "Nothing: no packet was lost.";
    NOT_MINE = 8, "not_mine", "an ARP or neighbour discovery request for another host's address",
        "Nothing: the other host answers.";
    OWN_SOURCE = 9, "own_source", "the source address is one of the router's own",
        "Find the sender (`ctl capture drops -w drops.pcapng`): it forges addresses or has one of the router's, or a loop brings the router's own packets back.";
}
