//! Drop reason of a monitor.

chunk::drop_reasons! {
    /// What a monitor drops for.
    pub const BLOCK: 7, "monitor";

    MONITORED = 0, "monitored", "the packet was processed; a monitor forwards nothing",
        "Nothing: this is where packets of a monitor end.";
}
