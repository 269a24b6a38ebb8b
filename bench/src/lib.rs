//! Workloads and peers of the bench command.
