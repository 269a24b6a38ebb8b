//! Drop reasons of the named-data forwarder.

chunk::drop_reasons! {
    /// What the forwarder drops for.
    pub const BLOCK: 6, "named data";

    NDN_MALFORMED = 0, "ndn_malformed", "not an NDN packet of format 0.3, or a wrong UDP checksum around it",
        "Check that the sender uses packet format 0.3. Over a capture taken on the sender, use `run -k none`.";
    NDN_TOO_LONG = 1, "ndn_too_long", "an NDN packet in a frame of more than one cell (2,048 bytes)",
        "Let the sender make smaller packets.";
    NDN_FRAGMENT = 2, "ndn_fragment", "a fragment of an NDN packet or of the datagram around it",
        "Let the sender make packets that fit the MTU: fragments are not reassembled.";
    NDN_NO_FACE = 3, "ndn_no_face", "from a neighbour that has no face",
        "Configure a face for the neighbour (`ctl show faces`), or allow faces on demand (`faces` of the port).";
    NDN_HOP_LIMIT = 4, "ndn_hop_limit", "the Interest's hop limit ran out",
        "Look for a loop among the routes for names.";
    NDN_NO_NONCE = 5, "ndn_no_nonce", "an Interest without a nonce",
        "Correct the sender: a forwarded Interest must have a nonce.";
    NDN_LOOP = 6, "ndn_loop", "the nonce of the Interest was seen before",
        "A few are normal if there are several paths. Otherwise look for a loop among the routes for names.";
    NDN_PIT_FULL = 7, "ndn_pit_full", "no room for another pending Interest",
        "Raise `pit_entries` in `[ndn]`, or find the sender of Interests that get no Data.";
    NDN_PIT_SHARE = 16, "ndn_pit_share", "the face or its port has its share of the pending Interests",
        "Find the sender of Interests that get no Data (`ctl show faces`). If the load is intended, raise `pit_entries` in `[ndn]`.";
    NDN_SUPPRESSED = 17, "ndn_suppressed", "the face asked again too soon after the Interest was forwarded",
        "A few are normal. Otherwise the sender repeats its Interests faster than Data can come.";
    NDN_AGGREGATED = 8, "ndn_aggregated", "the Interest was added to a pending one for the same name",
        "Nothing: the Data goes to both.";
    NDN_UNSOLICITED = 9, "ndn_unsolicited", "Data without a pending Interest",
        "Normal if the Data arrives after the lifetime of the Interest. Otherwise find the sender.";
    NDN_SATISFIED = 10, "ndn_satisfied", "Data whose only pending Interest came from the same face or has expired",
        "Nothing, if this is rare; otherwise check the lifetimes of Interests.";
    NDN_NACK = 11, "ndn_nack", "an Interest that a neighbour returned with a Nack",
        "Check the route for the name at the neighbour that returned it.";
    NDN_IDLE = 12, "ndn_idle", "a link packet without a packet inside",
        "Nothing: it carries only acknowledgements or other link signals.";
    NDN_FACES_FULL = 13, "ndn_faces_full", "the first Interest of a neighbour, without room for another face on demand",
        "Raise `on_demand_faces` in `[ndn]`, lower `idle_timeout`, or find who sends from many addresses or ports.";
    NDN_CONTROL_BUSY = 14, "ndn_control_busy", "an Interest that needs a new face or is a command, while too many others wait",
        "Nothing, if this is rare; otherwise find who sends from many addresses or ports, or many commands.";
    NDN_SCOPE = 15, "ndn_scope", "an Interest under `/localhost`, or under `/localhop` and not a command",
        "Nothing: names with these prefixes are not forwarded. Programs on other hosts send commands to `/localhop/nfd`.";
}
