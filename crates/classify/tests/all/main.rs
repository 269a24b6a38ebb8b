//! Classifiers. What all of them must do is in [`suite`], and what one alone has is in its own module. One line here
//! adds a classifier. Besides: checks of sets, files of ClassBench, generated sets.

mod check;
mod classbench;
#[path = "../common/mod.rs"]
mod common;
mod cuts;
mod generate;
mod linear;
mod rfc_tic;
mod suite;
mod tuple;

mod every {
    crate::suite::suite! {
        linear: classify::linear::LinearBuilder,
        tuple: classify::tuple::TupleBuilder,
        bloom: classify::bloom::BloomBuilder,
        cuts: classify::cuts::CutsBuilder,
        rfc: classify::rfc::RfcBuilder,
        tic: classify::tic::TicBuilder,
        auto: classify::auto::AutoBuilder,
    }
}
