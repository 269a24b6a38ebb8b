//! Drop reasons that lookups in tables give, on the host and in kernels.
//!
//! They are declared here, below the applications, because kernels name them: [`source`](crate::source) writes
//! a `DROP_…` for each.

chunk::drop_reasons! {
    /// What a lookup says about a packet that goes nowhere.
    pub const BLOCK: 2, "lookups";

    NO_ROUTE = 0, "no_route", "no route to the destination",
        "Add a route (`ctl show routes`), or find out why the routing daemon withdrew it.";
    BLACKHOLE = 1, "blackhole", "the route is a blackhole",
        "Nothing, if the route is intended; otherwise remove it.";
    UNREACHABLE = 2, "unreachable", "the route is marked unreachable",
        "Nothing, if the route is intended; otherwise remove it.";
    REVERSE_PATH = 3, "reverse_path", "the reverse-path check failed",
        "Check whether the source is forged. If the return path uses another interface, set `rpf` to `loose` or `off`.";
    BAD_LOOKUP = 4, "bad_lookup", "a table entry out of range",
        "Report it: a table or a device has a defect. Run with `--backend cpu` to find out which.";
}
