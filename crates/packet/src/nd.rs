//! nd
