//! ClientHello and ServerHello (RFC 8446 §4.1.2, §4.1.3).

use crate::bytes::Cursor;

/// A client's hello. Lists are the bytes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientHello<'a> {
    /// `legacy_version`; 0x0303 for TLS 1.2 and 1.3.
    pub legacy_version: u16,
    session: &'a [u8],
    ciphers: &'a [u8],
    extensions: &'a [u8],
}

/// A server's hello, also one that asks for another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerHello<'a> {
    /// `legacy_version`.
    pub legacy_version: u16,
    /// The cipher suite that it chose.
    pub cipher: u16,
    extensions: &'a [u8],
}

/// Type and data of extensions, in order.
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Iterator for Extensions<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let kind = self.cursor.u16()?;
        Some((kind, self.cursor.vector16()?))
    }
}

fn extensions(bytes: &[u8]) -> Extensions<'_> {
    Extensions { cursor: Cursor::new(bytes) }
}

fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    extensions(bytes).find(|(found, _)| *found == kind).map(|(_, data)| data)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// The extensions of a message, of which the rest is `cursor`: none, or such that their lengths tile it.
fn checked_extensions<'a>(mut cursor: Cursor<'a>) -> Option<&'a [u8]> {
    if cursor.is_empty() {
        return Some(&[]);
    }
    let bytes = cursor.vector16()?;
    let mut walk = extensions(bytes);
    while walk.next().is_some() {}
    (cursor.is_empty() && walk.cursor.is_empty()).then_some(bytes)
}

/// What is behind the header of a message of this type, which has to be whole.
fn body(message: &[u8], kind: u8) -> Option<Cursor<'_>> {
    let mut cursor = Cursor::new(message);
    let (found, len) = (cursor.u8()?, cursor.u24()?);
    (found == kind && len as usize == cursor.rest().len()).then_some(cursor)
}

impl<'a> ClientHello<'a> {
    /// Reads a message with its header of four bytes. `None` where a length is wrong.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let mut cursor = body(message, 1)?;
        let legacy_version = cursor.u16()?;
        let _random = cursor.take(32)?;
        let session = cursor.vector8()?;
        let ciphers = cursor.vector16()?;
        let compression = cursor.vector8()?;
        let fits =
            session.len() <= 32 && ciphers.len().is_multiple_of(2) && !compression.is_empty();
        let extensions = checked_extensions(cursor)?;
        fits.then_some(Self { legacy_version, session, ciphers, extensions })
    }

    /// The session that it wants to resume, or what it has there for servers in the middle (RFC 8446 §4.1.2).
    pub fn session(&self) -> &'a [u8] {
        self.session
    }

    /// The cipher suites that it offers.
    pub fn ciphers(&self) -> impl Iterator<Item = u16> {
        words(self.ciphers)
    }

    /// Its extensions.
    pub fn extensions(&self) -> Extensions<'a> {
        extensions(self.extensions)
    }

    /// The data of one extension.
    pub fn extension(&self, kind: u16) -> Option<&'a [u8]> {
        find(self.extensions, kind)
    }

    /// The name of the server that it wants (RFC 6066 §3), as it is written there.
    pub fn server_name(&self) -> Option<&'a [u8]> {
        let mut cursor = Cursor::new(self.extension(0)?);
        let mut list = Cursor::new(cursor.vector16()?);
        while let Some(kind) = list.u8() {
            let name = list.vector16()?;
            if kind == 0 {
                return Some(name);
            }
        }
        None
    }

    /// The protocols that it offers (RFC 7301), the preferred one first.
    pub fn alpn(&self) -> impl Iterator<Item = &'a [u8]> {
        let list = self.extension(16).and_then(|data| Cursor::new(data).vector16());
        let mut list = Cursor::new(list.unwrap_or_default());
        std::iter::from_fn(move || list.vector8())
    }

    /// The versions that it offers by the extension (RFC 8446 §4.2.1), without which it is `legacy_version`.
    pub fn supported_versions(&self) -> impl Iterator<Item = u16> {
        let list = self.extension(43).and_then(|data| Cursor::new(data).vector8());
        words(list.unwrap_or_default())
    }

    /// `supported_groups`.
    pub fn groups(&self) -> impl Iterator<Item = u16> {
        let list = self.extension(10).and_then(|data| Cursor::new(data).vector16());
        words(list.unwrap_or_default())
    }

    /// `ec_point_formats`.
    pub fn point_formats(&self) -> &'a [u8] {
        self.extension(11).and_then(|data| Cursor::new(data).vector8()).unwrap_or_default()
    }

    /// `signature_algorithms`.
    pub fn signature_algorithms(&self) -> impl Iterator<Item = u16> {
        let list = self.extension(13).and_then(|data| Cursor::new(data).vector16());
        words(list.unwrap_or_default())
    }
}

impl<'a> ServerHello<'a> {
    /// Reads a message with its header of four bytes. `None` where a length is wrong.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let mut cursor = body(message, 2)?;
        let legacy_version = cursor.u16()?;
        let _random = cursor.take(32)?;
        // Drafts of TLS 1.3 up to 21 have neither session nor compression.
        let is_draft = legacy_version >> 8 == 0x7f;
        let session = if is_draft { &[] } else { cursor.vector8()? };
        let cipher = cursor.u16()?;
        if !is_draft {
            cursor.u8()?;
        }
        let extensions = checked_extensions(cursor)?;
        (session.len() <= 32).then_some(Self { legacy_version, cipher, extensions })
    }

    /// Its extensions.
    pub fn extensions(&self) -> Extensions<'a> {
        extensions(self.extensions)
    }

    /// The data of one extension.
    pub fn extension(&self, kind: u16) -> Option<&'a [u8]> {
        find(self.extensions, kind)
    }

    /// The version that it chose, by the extension or without it.
    pub fn version(&self) -> u16 {
        let chosen = self.extension(43).and_then(|data| Cursor::new(data).u16());
        chosen.unwrap_or(self.legacy_version)
    }

    /// The protocol that it chose, where it says so in the clear.
    pub fn alpn(&self) -> Option<&'a [u8]> {
        let list = Cursor::new(self.extension(16)?).vector16()?;
        Cursor::new(list).vector8()
    }
}
