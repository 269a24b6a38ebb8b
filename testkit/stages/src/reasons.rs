//! Drop reasons of stages that only tests have.

chunk::drop_reasons! {
    /// What test stages drop for.
    pub const BLOCK: 255, "stages of tests";

    TEST = 0, "test", "dropped by a test stage", "Nothing: only tests drop for it.";
}
