//! Tests of the crate as it is used.

mod allocations;
mod answers;
mod bed;
mod cuts;
mod etopen;
mod explain;
mod missing;
mod numbers;
mod packets;
mod parts;
mod passing;
mod sets;
mod twin;
mod verify;
mod yaml;
