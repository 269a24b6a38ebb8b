//! Batch ciphers for packets: what an IPsec gateway and an encryption stage stand on.
//!
//! Ciphers and hashes come from well-kept crates, which choose AES-NI, VAES and SHA-NI at run time. This crate adds what
//! they lack: batches over packets with different keys, several buffers at once where one alone waits for itself, keys
//! that are wiped and never printed, and ESP (RFC 4303).
//!
//! ```text
//!  esp      Seal, Open: headers, padding, sequence numbers, replay windows
//!   │
//!  batch    Request: seal_batch, open_batch over packets of any suites and keys
//!   │
//!  suite    Suite, Key: AES-CTR, AES-CBC, AES-GCM, AES-GMAC, ChaCha20-Poly1305, NULL; HMAC with SHA-1 and SHA-2
//!   │
//!  modes    RawKey, Text: AES in ECB, CBC, CTR, CFB, OFB and GCM over a buffer, and over batches of them
//!  rsa      PrivateKey, PublicKey: signatures and decryption
//!  derive   Derivation: keys made of another one (HKDF)
//! ```
//!
//! What is done for a batch and not for one packet (each measured by `examples/batches.rs`):
//!
//! - **counter modes**: counter blocks of all packets of a key fill one run of blocks, so that short packets use the wide
//!   instructions as well as long ones;
//! - **GCM**: where the CPU has AVX-512, a packet is encrypted or decrypted and hashed in one pass;
//! - **CBC encryption**: a packet's blocks depend on each other, so blocks of several packets of a key are encrypted
//!   together;
//! - **HMAC-SHA1**: packets of any keys, in three streams of SHA-NI instructions or, by length, in sixteen lanes of AVX-512 (`sha1`).
//!
//! With the feature `aws-lc-rs`, AWS-LC does what it has, one packet at a time ([`Provider`]).
//!
//! Nothing allocates after a key exists (AWS-LC keeps a copy of texts that it opens, in memory of the thread that grows to the longest). Nothing here opens sockets or knows a pipeline.
//!
//! ```
//! use crypto::{Authentication, Encryption, Key, KeySize, Request, Secret, Suite};
//!
//! let suite = Suite::new(Encryption::AesCtr(KeySize::Bits128), Authentication::HmacSha1_96)?;
//! let key = Key::new(suite, &Secret::new(vec![1; 20]), &Secret::new(vec![2; 20]))?;
//! // 4 bytes of header, 8 of initialisation vector, the text, 12 of check value.
//! let mut packet = *b"head........text of a packet............";
//! let mut requests = [Request::new(&key, &mut packet, 4, 16)];
//! requests[0].iv[..8].copy_from_slice(&7u64.to_be_bytes()); // once for each key and packet
//! crypto::seal_batch(&mut requests);
//! assert_eq!(requests[0].result, Ok(()));
//! assert_ne!(packet[12..28], *b"text of a packet");
//!
//! let mut requests = [Request::new(&key, &mut packet, 4, 16)];
//! crypto::open_batch(&mut requests);
//! assert_eq!(requests[0].result, Ok(()));
//! assert_eq!(packet[12..28], *b"text of a packet");
//! # Ok::<(), crypto::KeyError>(())
//! ```
#![deny(unsafe_code)] // but in the vector leaves of `sha1`, `gcm` and `stream`

mod aes;
#[cfg(feature = "aws-lc-rs")]
mod aws_lc;
mod batch;
mod chain;
pub mod derive;
pub mod esp;
mod gcm;
mod mac;
mod marks;
pub mod modes;
pub mod rsa;
mod secret;
pub mod sequence;
mod sha1;
mod stream;
mod suite;
pub mod window;

pub use batch::{Failure, Request, TEXT_MAX, open_batch, seal_batch};
pub use marks::Marks;
pub use secret::{NotHex, Secret, SecretWords};
pub use suite::{
    Authentication, Encryption, Exposed, Icv, Key, KeyError, KeySize, Provider, Suite,
};
