//! `[router]` and `[[neighbour]]`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use packet::MacAddr;

use crate::config::kinds::{
    Kind, address, boolean, duration, integer, name_of, rate, unicast_mac, words,
};

// Rates as RFC 1812 §4.3.2.8 and RFC 4443 §2.4 ask for, timers as RFC 4861 §10.
crate::section! {
    /// Forwarding by IP address.
    pub struct Router("router") {
        /// Mirror the kernel's links, addresses, neighbours, routes and next-hop objects.
        restart kernel: bool = true, boolean();
        /// Maximum number of routes from the kernel. Further routes are counted (`shadeline_kernel_routes_held_back`) and added
        /// when there is room.
        // A full table of both families is about 1.3 million.
        restart kernel_routes_max: usize = 2_000_000, integer(1..=100_000_000);
        /// TTL and hop limit of packets that the router sends itself.
        live ttl: u8 = 64, integer(1..=255);
        /// Fragment IPv4 packets that exceed the MTU and may be fragmented.
        live fragment: bool = true, boolean();
        /// ICMP and ICMPv6 errors that each worker sends about packets of one port (over captures: all workers together). 0:
        /// none.
        live icmp_rate: u32 = 100, rate(0..=10_000_000);
        /// ICMP and ICMPv6 errors that may be sent at once.
        live icmp_burst: u32 = 20, integer(1..=1_000_000);
        /// Packets that may wait for one unresolved neighbour.
        restart arp_queue_packets: usize = 32, integer(0..=4096);
        /// Packets that may wait for all unresolved neighbours, per worker. Those that came in by one port may take as many
        /// places as are free, so one port has no more than half of them.
        restart arp_queue_total_packets: usize = 4096, integer(0..=1_048_576);
        /// Structure of the IPv4 table. `poptrie`: 6 MB for the full table. `dir24-8`: 69 MB. `auto`: `poptrie`, or
        /// `dir24-8` for very large tables ([lookup.md](lookup.md)).
        restart table_v4: TableV4 = TableV4::Auto, words();
        /// Structure of the IPv6 table. `mtrie6`: a multibit trie. `bspl`: binary search on prefix lengths. `auto`: the
        /// faster one, `mtrie6`.
        restart table_v6: TableV6 = TableV6::Auto, words();
        /// Maximum number of neighbours.
        restart neighbours_max: usize = 16_384, integer(16..=1_048_576);
        /// A neighbour is queried again when its last confirmation is this old.
        live neighbour_reachable: Duration = Duration::from_secs(30),
            duration(Duration::from_secs(1)..=Duration::from_hours(24));
        /// Time between two requests to a neighbour.
        live neighbour_retry: Duration = Duration::from_secs(1),
            duration(Duration::from_millis(10)..=Duration::from_hours(1));
        /// A neighbour has failed after this many unanswered requests.
        live neighbour_attempts: u32 = 3, integer(1..=100);
    }
}

crate::words! {
    /// `router.table_v4`.
    pub enum TableV4 {
        /// The fastest.
        Auto = "auto",
        /// DIR-24-8.
        Dir24_8 = "dir24-8",
        /// Poptrie.
        Poptrie = "poptrie",
    }
}

crate::words! {
    /// `router.table_v6`.
    pub enum TableV6 {
        /// The fastest.
        Auto = "auto",
        /// Binary search on prefix lengths.
        Bspl = "bspl",
        /// A multibit trie.
        Mtrie6 = "mtrie6",
    }
}

crate::section! {
    /// A static neighbour of a router or a named-data forwarder.
    #[derive(Eq, Hash)]
    pub struct Neighbour("[[neighbour]]") {
        /// Port that the neighbour is on.
        live port: String = String::new(), name_of("a port").needed("\"lan\"");
        /// IP address of the neighbour.
        live address: IpAddr = Ipv4Addr::UNSPECIFIED.into(), address().needed("\"192.0.2.7\"");
        /// MAC address of the neighbour.
        live mac: MacAddr = MacAddr::default(), unicast_mac().needed("\"02:00:5e:10:00:07\"");
    }
}
