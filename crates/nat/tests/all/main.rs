//! Translation of addresses: random packets and rules, FTP, and what is refused.

mod closing;
mod families;
mod ftp;
mod properties;
mod refusals;
mod textbook;
