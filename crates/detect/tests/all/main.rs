//! Tests of the crate as it is used.

mod bed;
mod cuts;
mod etopen;
mod twin;
mod verify;
mod yaml;
