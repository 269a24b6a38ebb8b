//! Drop reasons of address translation.

chunk::drop_reasons! {
    /// What address translation drops for.
    pub const BLOCK: 11, "address translation";

    NAT_PORTS_EXHAUSTED = 0, "nat_ports_exhausted", "no outside port or address is free",
        "Give the rule more outside addresses or a wider range of `ports`, or lower `bindings_per_host` in `[translation]`.";
    NAT_SESSIONS_EXHAUSTED = 1, "nat_sessions_exhausted", "the table of sessions is full of open connections",
        "Raise `sessions` in `[translation]`, or find who opens so many (`ctl show nat`).";
    NAT_HOST_LIMIT = 2, "nat_host_limit", "the inside host has as many bindings as it may",
        "Find out what the host does (`ctl show nat --address`), or raise `bindings_per_host` in `[translation]`.";
    NAT_CONFLICT = 3, "nat_conflict", "the translated addresses and ports belong to another session",
        "Normal for a few. Otherwise two rules lead to the same inside address and port.";
    NAT_NO_SESSION = 4, "nat_no_session", "no session for this outside address and port",
        "Normal for scans, and for answers that come too late.";
    NAT_UNTRANSLATABLE = 5, "nat_untranslatable", "the packet cannot be translated",
        "Find the sender (`ctl capture drops -w drops.pcapng`): some headers exist in one IP version only.";
    NAT_FRAGMENT = 6, "nat_fragment", "the datagram could not be reassembled",
        "Look for loss on the path. Malformed, overlapping and late fragments count here too.";
    NAT_FTP_WAITS = 7, "nat_ftp_waits", "a segment of an FTP control connection precedes others or ends within an announcement",
        "Normal where segments get lost or out of order: the sender sends it again.";
    NAT_STRAY = 8, "nat_stray", "a TCP reset, or a segment without SYN and ACK, that belongs to no session",
        "Normal for resets that come late. Many from one host are a scan or a faulty program.";
    NAT64_ADDRESS = 9, "nat64_address", "NAT64 does not translate from or to this address",
        "The destination contains an IPv4 address that belongs to no host, is the router's own, is an outside address whose port no host has, or is private under 64:ff9b::/96; or the source is in a `prefix`. Private addresses need a `prefix` of your own.";
}
