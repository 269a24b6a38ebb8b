//! Drop reasons of the firewall.

chunk::drop_reasons! {
    /// What the firewall drops for.
    pub const BLOCK: 5, "firewall";

    FIREWALL_DROP = 0, "firewall_drop", "a rule of the firewall, or its default, says so",
        "Nothing, if the rule is meant; `ctl rule show` shows which rules count.";
    FIREWALL_REJECT = 1, "firewall_reject", "rejected by a rule of the firewall or by its default; the sender gets an answer",
        "Nothing, if the rule is meant; `ctl rule show` shows which rules count.";
    FIREWALL_SHORT = 2, "firewall_short", "ends before ports, type or flags that rules may ask for, or a fragment that could write over them",
        "Find the sender: such packets are made to pass firewalls.";
    FIREWALL_MALFORMED = 3, "firewall_malformed", "a malformed IP packet, which no rule can judge",
        "Capture the packets to find the sender (`ctl capture drops`).";
}
