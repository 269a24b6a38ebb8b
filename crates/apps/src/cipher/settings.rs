//! `[stage.NAME]` of the encryption stage.

use std::path::PathBuf;

use control::config::kinds::{file, integer, words};
use control::config::section::Kind;
use crypto::modes::{Mode, Padding};

control::words! {
    /// Which way.
    pub enum Direction {
        /// Payload becomes secret.
        Encrypt = "encrypt",
        /// Payload becomes as it was.
        Decrypt = "decrypt",
    }
}

control::words! {
    /// AES: bits of the key, and mode.
    pub enum Algorithm {
        /// AES-128-GCM.
        Gcm128 = "aes-128-gcm",
        /// AES-192-GCM.
        Gcm192 = "aes-192-gcm",
        /// AES-256-GCM.
        Gcm256 = "aes-256-gcm",
        /// AES-128-CTR.
        Ctr128 = "aes-128-ctr",
        /// AES-192-CTR.
        Ctr192 = "aes-192-ctr",
        /// AES-256-CTR.
        Ctr256 = "aes-256-ctr",
        /// AES-128-CBC.
        Cbc128 = "aes-128-cbc",
        /// AES-192-CBC.
        Cbc192 = "aes-192-cbc",
        /// AES-256-CBC.
        Cbc256 = "aes-256-cbc",
        /// AES-128-CFB.
        Cfb128 = "aes-128-cfb",
        /// AES-192-CFB.
        Cfb192 = "aes-192-cfb",
        /// AES-256-CFB.
        Cfb256 = "aes-256-cfb",
        /// AES-128-OFB.
        Ofb128 = "aes-128-ofb",
        /// AES-192-OFB.
        Ofb192 = "aes-192-ofb",
        /// AES-256-OFB.
        Ofb256 = "aes-256-ofb",
        /// AES-128-ECB.
        Ecb128 = "aes-128-ecb",
        /// AES-192-ECB.
        Ecb192 = "aes-192-ecb",
        /// AES-256-ECB.
        Ecb256 = "aes-256-ecb",
    }
}

control::words! {
    /// What makes a payload a multiple of the block.
    pub enum Fill {
        /// 1 to 16 bytes.
        Pkcs7 = "pkcs7",
        /// Nothing: other payload is dropped.
        None = "none",
    }
}

control::words! {
    /// Where the initialisation vector is.
    pub enum Vector {
        /// In front of the payload.
        Carried = "carried",
        /// It is made of the headers.
        Derived = "derived",
    }
}

control::words! {
    /// Whose key it is.
    pub enum Keys {
        /// One for each direction of each connection, made of the key of the file.
        Connection = "connection",
        /// The one of the file for all packets.
        Static = "static",
    }
}

control::section! {
    /// Encryption of the payload of TCP and UDP packets with AES ([cipher.md](cipher.md)).
    pub struct Settings("stage.cipher") {
        /// `encrypt` or `decrypt`.
        rebuild direction: Direction = Direction::Encrypt, words().needed("\"encrypt\"");
        /// Cipher: bits of the key, and mode. Only GCM detects changed packets. ECB shows which blocks are equal.
        rebuild algorithm: Algorithm = Algorithm::Gcm128, words();
        /// Path of the file with the key, as hexadecimal digits. Only its owner may have access to it (mode
        /// 0600 or 0400); the owner must be root or the user who runs the program. A reload reads the file again.
        rebuild key_file: PathBuf = PathBuf::new(), file("the file with the key").needed("\"cipher.key\"");
        /// `connection`: each direction of each connection has a key of its own, derived from that of the file (16 to 64 bytes)
        /// and from addresses, ports and protocol. `static`: the key of the file, as long as the cipher's, is that of all
        /// packets.
        rebuild keys: Keys = Keys::Connection, words();
        /// `carried`: the payload begins with the initialisation vector, 16 bytes (GCM: 12). `derived`: both ends make it of the
        /// headers, so the length stays as it is, but packets may share one ([cipher.md](cipher.md)); not for GCM. ECB has none.
        rebuild iv: Vector = Vector::Carried, words();
        /// ECB and CBC: padding of 1 to 16 bytes, or none; then payload that is not a multiple of 16 bytes is dropped.
        rebuild padding: Fill = Fill::Pkcs7, words();
        /// Longest IP packet after encryption, in bytes. Longer ones are dropped.
        rebuild mtu: u16 = 1500, integer(68..=65_535);
        /// Keys of connections that each worker keeps. The key of another connection is derived again when it is needed.
        rebuild connections: u32 = 4096, integer(64..=1_048_576);
    }
}

impl Settings {
    /// The mode of AES.
    pub fn mode(&self) -> Mode {
        let padding = match self.padding {
            Fill::Pkcs7 => Padding::Pkcs7,
            Fill::None => Padding::None,
        };
        use Algorithm as A;
        match self.algorithm {
            A::Gcm128 | A::Gcm192 | A::Gcm256 => Mode::Gcm,
            A::Ctr128 | A::Ctr192 | A::Ctr256 => Mode::Ctr,
            A::Cbc128 | A::Cbc192 | A::Cbc256 => Mode::Cbc(padding),
            A::Cfb128 | A::Cfb192 | A::Cfb256 => Mode::Cfb,
            A::Ofb128 | A::Ofb192 | A::Ofb256 => Mode::Ofb,
            A::Ecb128 | A::Ecb192 | A::Ecb256 => Mode::Ecb(padding),
        }
    }

    /// Bytes of the cipher's key.
    pub fn key_len(&self) -> usize {
        use Algorithm as A;
        match self.algorithm {
            A::Gcm128 | A::Ctr128 | A::Cbc128 | A::Cfb128 | A::Ofb128 | A::Ecb128 => 16,
            A::Gcm192 | A::Ctr192 | A::Cbc192 | A::Cfb192 | A::Ofb192 | A::Ecb192 => 24,
            A::Gcm256 | A::Ctr256 | A::Cbc256 | A::Cfb256 | A::Ofb256 | A::Ecb256 => 32,
        }
    }

    /// Bytes of the initialisation vector in front of the payload.
    pub fn iv_len(&self) -> usize {
        match self.iv {
            Vector::Carried => self.mode().iv_len(),
            Vector::Derived => 0,
        }
    }

    /// The cipher as OpenSSL names it: `AES-128-GCM`.
    pub fn name(&self) -> String {
        format!("AES-{}-{}", self.key_len() * 8, self.mode())
    }

    /// What does not go together.
    ///
    /// # Errors
    /// In words.
    pub fn check(&self) -> Result<(), String> {
        match (self.mode(), self.iv) {
            (Mode::Gcm, Vector::Derived) => Err(
                "`iv = \"derived\"` is not possible with GCM: two packets with the same initialisation vector would \
                 reveal its authentication key"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }

    /// What makes encryption weaker than it looks, or does nothing.
    pub fn weakness(&self) -> Option<&'static str> {
        match (self.mode(), self.iv) {
            (Mode::Ecb(_), _) => Some("ECB shows which blocks of 16 bytes are equal"),
            (Mode::Ctr | Mode::Ofb, Vector::Derived) => Some(
                "`iv = \"derived\"` may use a key stream twice, which reveals what two packets have in common: \
                 UDP packets with the same IPv4 identification (at the latest after 65,536 of them), all UDP packets over IPv6, \
                 TCP after 4 GiB, and TCP segments that are sent again with other bytes",
            ),
            (mode, _) if self.padding == Fill::None && !matches!(mode, Mode::Cbc(_)) => {
                Some("`padding` has no effect: only CBC and ECB have padding")
            }
            _ => None,
        }
    }
}
