//! The named-data forwarder's parts against plain twins.

mod list;
mod pit;
mod stages;
mod store;
mod strangers;
mod twin;
