//! Drop reasons of modules.

chunk::drop_reasons! {
    /// What modules drop for.
    pub const BLOCK: 10, "modules";

    MODULE_DROP = 0, "module_drop", "a module dropped the packet",
        "See `ctl show modules` for the module, and its source for the reason.";
    MODULE_FAILED = 1, "module_failed",
        "a module with `on_failure = \"drop\"` could not process the packet: it is disabled, or the device failed",
        "See the log for the reason; correct the source and reload.";
}
