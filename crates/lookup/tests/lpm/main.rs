//! Longest-prefix tables. What all of them must do is in [`suite`], and what one alone has is in its own module.
//! One line here adds a table.

mod auto4;
mod bspl;
#[path = "../common/mod.rs"]
mod common;
mod dir24_8;
mod internet;
mod mtrie6;
mod poptrie;
mod suite;

mod every {
    crate::suite::suite! {
        dir24_8: lookup::dir24_8::Dir24_8Builder,
        poptrie: lookup::poptrie::PoptrieBuilder,
        auto4: lookup::auto4::Auto4Builder,
        bspl: lookup::bspl::BsplBuilder,
        mtrie6: lookup::mtrie6::Mtrie6Builder,
    }
}
