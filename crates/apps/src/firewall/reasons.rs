//! Drop reasons of the firewall.

chunk::drop_reasons! {
    /// What the firewall drops for.
    pub const BLOCK: 5, "firewall";

    FIREWALL_DROP = 0, "firewall_drop", "dropped by a rule of the firewall or by its default action",
        "Nothing, if the rule is intended. `ctl rule show` shows the hits of each rule, `ctl trace` the rule that a packet matched.";
    FIREWALL_REJECT = 1, "firewall_reject", "rejected by a rule of the firewall or by its default action; the sender gets an answer",
        "Nothing, if the rule is intended. `ctl rule show` shows the hits of each rule, `ctl trace` the rule that a packet matched.";
    FIREWALL_SHORT = 2, "firewall_short", "the packet ends before its ports, type or flags, or is a fragment that could overwrite them",
        "Over captures: capture whole frames (`tcpdump -s 0`). Live: find the sender, because such packets are crafted to evade firewalls.";
    FIREWALL_MALFORMED = 3, "firewall_malformed", "a malformed IP packet, to which no rule can be applied",
        "Find the sender (`ctl capture drops -w drops.pcapng`): it sends broken packets.";
}
