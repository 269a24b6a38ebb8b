//! What a session may use.

/// Bounds of a session. Beyond one of them a thing is left out or given up, with an anomaly where it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of each side that are held until the protocol is known, and of a tunnel until the proxy answers.
    pub held_bytes: usize,
    /// Transactions that wait for their other side at a time; the oldest is given up for a new one.
    pub open_transactions: usize,
    /// Bytes of what open transactions of a session say (heads, commands, replies, recipients, names, URLs), with what it costs
    /// to keep them; at most one head more. Beyond them, the oldest transaction that waits is given up for a new one; of
    /// replies, recipients, names and URLs, more are left out.
    pub session_bytes: usize,
    /// Bytes of the head of an HTTP message, or of the header of a mail or of one of its parts.
    pub head_bytes: usize,
    /// Fields of a head.
    pub fields: usize,
    /// Bytes of a line of SMTP, FTP, SSH; more are left out.
    pub line_bytes: usize,
    /// Bytes of a body that are handed on (`http.request_body`, `http.response_body`, `file.data`), after decoding.
    /// Sizes and digests of files go on behind them.
    pub body_bytes: u64,
    /// Codings of a body that are undone, one upon the other.
    pub codings: usize,
    /// Bytes that a byte of a compressed body may become, once there are more than [`ratio_from_bytes`](Self::ratio_from_bytes).
    pub ratio: u64,
    /// Decoded bytes below which the ratio does not count.
    pub ratio_from_bytes: u64,
    /// Decoded bytes of one body.
    pub decoded_bytes: u64,
    /// Bytes of a handshake message of TLS, and of a key-exchange message of SSH.
    pub handshake_bytes: usize,
    /// Certificates of a chain that are read.
    pub certificates: usize,
    /// Questions and records of a DNS message that are read.
    pub records: usize,
    /// Recipients, replies, attachments, URLs of a transaction that are kept, each.
    pub entries: usize,
    /// Multiparts within multiparts.
    pub depth: usize,
    /// Anomalies of a session that are reported.
    pub anomalies: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            held_bytes: 16 << 10,
            open_transactions: 64,
            session_bytes: 256 << 10,
            head_bytes: 64 << 10,
            fields: 256,
            line_bytes: 4096,
            body_bytes: 1 << 20,
            codings: 2,
            ratio: 2048,
            ratio_from_bytes: 1 << 20,
            decoded_bytes: 64 << 20,
            handshake_bytes: 64 << 10,
            certificates: 8,
            records: 512,
            entries: 256,
            depth: 4,
            anomalies: 64,
        }
    }
}
