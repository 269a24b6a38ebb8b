//! (in the making)
/// Which packets to make.
#[derive(Debug, clap::Args)]
pub(crate) struct TrafficArgs {}
