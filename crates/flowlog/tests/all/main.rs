//! Records as other programs read them, in one program.

mod collector;
mod eve;
mod ipfix;
mod nfdump;
#[cfg(feature = "parquet")]
mod parquet;
mod records;
mod sink;
mod tshark;
mod writers;
mod written;
