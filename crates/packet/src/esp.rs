//! esp
