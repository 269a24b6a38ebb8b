//! Devices that shade jobs.
