//! Exact-match tables. What all of them must do is in [`suite`], and what one alone has is in its own module.
//! One line here adds a table.

mod bridge;
#[path = "../common/mod.rs"]
mod common;
mod cuckoo;
mod suite;

mod every {
    crate::suite::suite! {
        cuckoo_of_8_bytes: lookup::cuckoo::CuckooBuilder<u64>,
        cuckoo_of_16_bytes: lookup::cuckoo::CuckooBuilder<[u64; 2]>,
        stations: crate::bridge::Stations,
    }
}
