//! Which skips continuous integration accepts.
//!
//! `testkit` compiles this same file, so that the test that skips and the runner that counts agree.

/// True under `CI=true`: a missing component is then a failure.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|v| v == "true" || v == "1")
}

/// What a machine of continuous integration may lack: a GPU, a network card, the shared data.
pub(crate) fn is_allowed(reason: &str) -> bool {
    let mut words = reason.split(|c: char| !c.is_alphanumeric());
    reason.contains("../shared") || words.any(|w| w == "GPU" || w == "NIC")
}
