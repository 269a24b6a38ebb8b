//! Connections with TLS: certificates of both ends are checked.
//!
//! ```text
//!   socket ─▶ reading thread ─ bytes ─▶ ┌─────┐ ─▶ messages
//!                                       │ TLS │   (one lock, never held while a socket waits)
//!   socket ◀─ writing thread ◀─ bytes ─ └─────┘ ◀─ messages
//! ```
//!
//! Versions 1.2 and 1.3, by rustls. Whoever connects needs a certificate that the CA has signed, tools such as ovs-ofctl too; a
//! controller's certificate has to name the host of its address. With lists of revoked certificates (RFC 5280) no certificate of a
//! list is accepted, nor one whose CA has no list. The handshake has a deadline ([`HANDSHAKE`]), however slowly bytes come.
//!
//! The private key is read once. Its text and its bytes are wiped; what signs is within rustls.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer,
    PrivateSec1KeyDer, ServerName,
};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};
use zeroize::Zeroizing;

/// A handshake takes this long at most.
pub const HANDSHAKE: Duration = Duration::from_secs(5);

/// Bytes of a file of certificates or keys, at most.
const FILE_MAX: u64 = 1 << 20;

/// Where certificates and keys are, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The switch's private key; nobody but its owner may read the file.
    pub private_key: PathBuf,
    /// The switch's certificate, and those between it and the CA's.
    pub certificate: PathBuf,
    /// Certificates of the CAs that sign those of controllers and tools.
    pub ca_certificate: PathBuf,
    /// Lists of certificates that CAs have revoked. With it each CA needs one. When a list should be renewed is not looked at.
    pub crl: Option<PathBuf>,
}

/// What both ends of connections are checked with.
#[derive(Clone, Debug)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// The bytes of a file, wiped in the end: it may hold a key.
fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let wrong = |error: io::Error| format!("{}: {error}", path.display());
    let file = fs::File::open(path).map_err(wrong)?;
    let len = file.metadata().map_err(wrong)?.len().min(FILE_MAX);
    // With room for all of it nothing is moved, so no other copy is left behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(len as usize + 64));
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(format!("{}: more than 1 MiB", path.display()));
    }
    Ok(bytes)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(path)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let read = read.map_err(|error| format!("{}: {error}", path.display()))?;
    match read.is_empty() {
        true => Err(format!("{}: no certificate in PEM", path.display())),
        false => Ok(read),
    }
}

fn revoked(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let bytes = read(path)?;
    let read: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
    let read = read.map_err(|error| format!("{}: {error}", path.display()))?;
    match read.is_empty() {
        true => Err(format!("{}: no list of revoked certificates in PEM", path.display())),
        false => Ok(read),
    }
}

/// The private key of a text in PEM (RFC 7468), as what signs with it. Decoded here, because readers of PEM keep copies.
fn signing_key(text: &[u8]) -> Option<Result<Arc<dyn SigningKey>, rustls::Error>> {
    let find = |text: &[u8], part: &[u8]| text.windows(part.len()).position(|own| own == part);
    let section = |label: &str| {
        let begin = format!("-----BEGIN {label}-----");
        let rest = &text[find(text, begin.as_bytes())? + begin.len()..];
        let body = &rest[..find(rest, b"-----END")?];
        let mut bytes = Zeroizing::new(Vec::with_capacity(body.len()));
        bytes.extend(body.iter().filter(|byte| !byte.is_ascii_whitespace()));
        let len = Base64::decode_in_place(&mut bytes).ok()?.len();
        bytes.truncate(len);
        Some(bytes)
    };
    let key = if let Some(der) = section("PRIVATE KEY") {
        any_supported_type(&PrivatePkcs8KeyDer::from(&**der).into())
    } else if let Some(der) = section("EC PRIVATE KEY") {
        any_supported_type(&PrivateSec1KeyDer::from(&**der).into())
    } else {
        let der = section("RSA PRIVATE KEY")?;
        any_supported_type(&PrivatePkcs1KeyDer::from(&**der).into())
    };
    Some(key)
}

fn private_key(path: &Path) -> Result<Arc<dyn SigningKey>, String> {
    let name = path.display();
    let about = fs::metadata(path).map_err(|error| format!("{name}: {error}"))?;
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "{name}: others may use the private key (mode {mode:04o}); change it: chmod 600 {name}"
        ));
    }
    let key = signing_key(&read(path)?);
    let key = key.ok_or_else(|| format!("{name}: no private key in PEM"))?;
    key.map_err(|error| format!("{name}: {error}"))
}

impl Tls {
    /// Reads certificates and key.
    ///
    /// # Errors
    /// A file that cannot be read, is not what it should be, or lets others read the key; a key that is not the certificate's.
    pub fn load(files: &TlsFiles) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let own = certificates(&files.certificate)?;
        let wrong = |error: rustls::Error| format!("{}: {error}", files.certificate.display());
        let own = CertifiedKey::new(own, private_key(&files.private_key)?);
        own.keys_match().map_err(wrong)?;
        let own = Arc::new(SingleCertAndKey::from(own));
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&files.ca_certificate)? {
            let wrong = |error| format!("{}: {error}", files.ca_certificate.display());
            roots.add(certificate).map_err(wrong)?;
        }
        let (roots, file) = (Arc::new(roots), files.crl.as_ref().unwrap_or(&files.ca_certificate));
        let crls = files.crl.as_ref().map_or_else(|| Ok(Vec::new()), |path| revoked(path))?;
        let unfit = |error| format!("{}: {error}", file.display());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
            .with_crls(crls.clone())
            .build()
            .map_err(unfit)?;
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .with_webpki_verifier(verifier)
            .with_client_cert_resolver(own.clone());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .with_crls(crls)
            .build()
            .map_err(unfit)?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(own);
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// The handshake of who connects, with the certificate of `host` at the other end. Blocks up to [`HANDSHAKE`].
    ///
    /// # Errors
    /// No handshake in time, or a certificate that is not accepted by one of both ends.
    pub fn connect(&self, socket: TcpStream, host: &str) -> io::Result<Stream> {
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|_| io::Error::other(format!("`{host}` is not a host name")))?;
        let own = ClientConnection::new(self.client.clone(), name).map_err(io::Error::other)?;
        handshake(socket, own.into())
    }

    /// The handshake of who is connected to. Blocks up to [`HANDSHAKE`].
    ///
    /// # Errors
    /// As [`Tls::connect`].
    pub fn accept(&self, socket: TcpStream) -> io::Result<Stream> {
        let own = ServerConnection::new(self.server.clone()).map_err(io::Error::other)?;
        handshake(socket, own.into())
    }
}

/// A socket whose reads and writes end by a time.
struct Timed<'a> {
    socket: &'a TcpStream,
    until: Instant,
}

impl Timed<'_> {
    fn rest(&self) -> io::Result<Duration> {
        let rest = self.until.saturating_duration_since(Instant::now());
        match rest.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(rest),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.rest()?))?;
        (&*self.socket).read(to)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.rest()?))?;
        (&*self.socket).write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn handshake(socket: TcpStream, mut tls: Connection) -> io::Result<Stream> {
    // A piece of output is as long as a connection may hold; the handshake's own bytes come beside.
    tls.set_buffer_limit(None);
    let mut timed = Timed { socket: &socket, until: Instant::now() + HANDSHAKE };
    while tls.is_handshaking() || tls.wants_write() {
        tls.complete_io(&mut timed).map_err(in_words)?;
    }
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)?;
    Ok(Stream::Tls(Arc::new(socket), Arc::new(Mutex::new(tls))))
}

/// Why TLS failed, as people know it.
fn in_words(error: io::Error) -> io::Error {
    use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};
    let kind = error.kind();
    let own = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let text = match own {
        Some(Error::InvalidCertificate(why)) => match why {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the certificate of the other end has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the certificate of the other end is not valid yet".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the certificate of the other end is for another host".to_owned()
            }
            CertificateError::UnknownIssuer => {
                "the certificate of the other end is signed by none of ca_certificate".to_owned()
            }
            CertificateError::Revoked => {
                "the certificate of the other end has been revoked".to_owned()
            }
            CertificateError::UnknownRevocationStatus => {
                "crl has no list of the CA that signed the certificate of the other end".to_owned()
            }
            why => format!("the certificate of the other end is not accepted: {why}"),
        },
        Some(Error::NoCertificatesPresented) => "the other end has no certificate".to_owned(),
        Some(Error::AlertReceived(alert)) => match alert {
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateRequired => {
                format!("the other end does not accept the switch's certificate ({alert:?})")
            }
            alert => format!("the other end ended TLS ({alert:?})"),
        },
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "the other end does not speak TLS".to_owned()
        }
        Some(Error::PeerIncompatible(
            PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon,
        )) => "no signature that both ends know".to_owned(),
        Some(other) => format!("TLS: {other}"),
        None => match kind {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no TLS handshake within {} s", HANDSHAKE.as_secs())
            }
            io::ErrorKind::UnexpectedEof => "the other end hung up in the TLS handshake".to_owned(),
            _ => format!("TLS: {error}"),
        },
    };
    io::Error::new(kind, text)
}

/// A connection, with TLS or plain.
#[derive(Clone, Debug)]
pub enum Stream {
    /// Plain TCP.
    Tcp(Arc<TcpStream>),
    /// TLS over it.
    Tls(Arc<TcpStream>, Arc<Mutex<Connection>>),
}

impl Stream {
    /// Ends both directions; whoever waits for the socket wakes.
    pub fn shutdown(&self) {
        let (Self::Tcp(socket) | Self::Tls(socket, _)) = self;
        let _ = socket.shutdown(Shutdown::Both);
    }

    /// Its socket.
    pub fn socket(&self) -> &TcpStream {
        let (Self::Tcp(socket) | Self::Tls(socket, _)) = self;
        socket
    }
}

/// The lock is held for a few instructions that do not panic.
fn lock(tls: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    tls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The side of a connection that reads. What TLS does not accept is an error of the kind `InvalidData`, whose text says why.
#[derive(Debug)]
pub struct Reader {
    stream: Stream,
    /// Bytes from the socket, and those of them that TLS has not had yet.
    raw: Vec<u8>,
    rest: std::ops::Range<usize>,
}

impl Reader {
    /// Of a connection.
    pub fn new(stream: Stream) -> Self {
        let raw = match stream {
            Stream::Tcp(_) => Vec::new(),
            Stream::Tls(..) => vec![0; 16 << 10],
        };
        Self { stream, raw, rest: 0..0 }
    }
}

impl Read for Reader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let (socket, tls) = match &self.stream {
            Stream::Tcp(socket) => return (&**socket).read(to),
            Stream::Tls(socket, tls) => (socket, tls),
        };
        loop {
            {
                let mut tls = lock(tls);
                match tls.reader().read(to) {
                    Ok(len) => return Ok(len), // 0: the peer has said that it ends
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
                if !self.rest.is_empty() {
                    let mut bytes = &self.raw[self.rest.clone()];
                    let taken = tls.read_tls(&mut bytes)?;
                    self.rest.start += taken;
                    if let Err(error) = tls.process_new_packets() {
                        // The peer hears why, if it still listens.
                        let mut alert = Vec::new();
                        let _ = tls.write_tls(&mut alert);
                        drop(tls);
                        let _ = (&**socket).write(&alert);
                        return Err(in_words(io::Error::new(io::ErrorKind::InvalidData, error)));
                    }
                    continue;
                }
            }
            let len = (&**socket).read(&mut self.raw)?;
            if len == 0 {
                return Ok(0);
            }
            self.rest = 0..len;
        }
    }
}

/// Sends a piece, waiting for the peer.
///
/// # Errors
/// The connection has ended.
pub fn write(to: &Stream, piece: &[u8]) -> io::Result<()> {
    match to {
        Stream::Tcp(socket) => (&**socket).write_all(piece),
        Stream::Tls(socket, tls) => {
            let mut bytes = Vec::with_capacity(piece.len() + 1024);
            {
                let mut tls = lock(tls);
                tls.writer().write_all(piece)?;
                while tls.wants_write() {
                    tls.write_tls(&mut bytes)?;
                }
            }
            (&**socket).write_all(&bytes)
        }
    }
}
