//! (in the making)
use crate::failure::Failure;
pub(crate) fn run(_: &crate::cli::GenPacketsArgs) -> Result<(), Failure> {
    Err(Failure::other("in the making"))
}
