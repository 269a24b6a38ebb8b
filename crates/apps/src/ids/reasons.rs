//! Drop reasons of intrusion detection.

chunk::drop_reasons! {
    /// What intrusion detection drops for.
    pub const BLOCK: 13, "intrusion detection";

    IDS_DROP = 0, "ids_drop", "dropped by a rule of intrusion detection",
        "Nothing, if the rule is intended. `eve.json` names it in an event of the type `drop`; `ctl show ids` counts matches.";
    IDS_FLOW = 1, "ids_flow", "a rule of intrusion detection dropped an earlier packet of the flow",
        "Nothing, if the rule is intended. The event of the type `drop` of the earlier packet names it.";
    IDS_REJECT = 2, "ids_reject", "rejected by a rule of intrusion detection; the sender gets an answer",
        "Nothing, if the rule is intended. `eve.json` names it in an event of the type `drop`; `ctl show ids` counts matches.";
    IDS_LIMIT = 3, "ids_limit", "the flow has exceeded a bound of its inspection, its segment found no memory in which to wait for others, or the flow table has no place for the flow, with `on_limit = \"drop\"` of `[ids]`",
        "See the event `anomaly` of its flow in `eve.json`. With `on_limit = \"inspect\"` or `\"bypass\"` such flows go on.";
    IDS_INVALID = 4, "ids_invalid", "a TCP segment that is no part of a stream, so that rules cannot inspect it with one",
        "Late segments of closed connections are usual. Many are an evasion, or a connection of which a part takes another path. With `drop_invalid = false` of `[ids]` they pass.";
}
