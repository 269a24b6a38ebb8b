//! Things that are as they should not be.

use l7proto::Protocol;

use crate::sink::Direction;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident $name:literal $of:expr;)*) => {
        /// What is wrong. Names are those of Suricata's `app-layer-event` where it has one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum AnomalyKind {
            $($(#[$doc])* $variant,)*
        }

        impl AnomalyKind {
            /// Each of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name in lower case, without that of the protocol.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The protocol whose parser says it; `None` for what concerns any.
            pub const fn protocol(self) -> Option<Protocol> {
                match self { $(Self::$variant => $of,)* }
            }
        }
    };
}

const HTTP: Option<Protocol> = Some(Protocol::Http1);
const HTTP2: Option<Protocol> = Some(Protocol::Http2);
const DNS: Option<Protocol> = Some(Protocol::Dns);
const TLS: Option<Protocol> = Some(Protocol::Tls);
const SSH: Option<Protocol> = Some(Protocol::Ssh);
const SMTP: Option<Protocol> = Some(Protocol::Smtp);
const FTP: Option<Protocol> = Some(Protocol::Ftp);

kinds! {
    /// The sides speak different protocols.
    MismatchBothDirections "applayer_mismatch_protocol_both_directions" None;
    /// The server spoke first where the client has to.
    WrongDirectionFirstData "applayer_wrong_direction_first_data" None;
    /// One side speaks a protocol that is known, the other does not.
    OnlyOneDirection "applayer_detect_protocol_only_one_direction" None;
    /// The protocol changed to one that was not announced.
    UnexpectedProtocol "applayer_unexpected_protocol" None;
    /// STARTTLS was accepted, and no TLS follows.
    NoTlsAfterStarttls "applayer_no_tls_after_starttls" None;

    /// A response without a request.
    HttpUnmatchedResponse "unable_to_match_response_to_request" HTTP;
    /// The first line of a request is not one, or its version is none of HTTP/1.
    HttpRequestLine "request_line_invalid" HTTP;
    /// Fields follow a line without a version.
    HttpNoProtocol "request_line_missing_protocol" HTTP;
    /// The first line of a response is not one.
    HttpResponseLine "response_line_invalid" HTTP;
    /// The version of a response is none of HTTP/1.
    HttpResponseProtocol "response_invalid_protocol" HTTP;
    /// The status of a response is no number from 100 to 999, or is written otherwise.
    HttpResponseStatus "response_invalid_status" HTTP;
    /// A field of a request without a colon or with a bad name.
    HttpRequestField "request_header_invalid" HTTP;
    /// A field of a response without a colon or with a bad name.
    HttpResponseField "response_header_invalid" HTTP;
    /// `Content-Length` of a request is not a number, or several differ.
    HttpRequestLength "invalid_content_length_field_in_request" HTTP;
    /// `Content-Length` of a response is not a number, or several differ.
    HttpResponseLength "invalid_content_length_field_in_response" HTTP;
    /// The size of a chunk of a request is no number.
    HttpRequestChunk "invalid_request_chunk_len" HTTP;
    /// The size of a chunk of a response is no number.
    HttpResponseChunk "invalid_response_chunk_len" HTTP;
    /// `Transfer-Encoding` is one that is not known.
    HttpTransferCoding "invalid_transfer_encoding_value_in_request" HTTP;
    /// A request of HTTP/1.1 without `Host`.
    HttpNoHost "missing_host_header" HTTP;
    /// Target and `Host` name different servers.
    HttpHostAmbiguous "host_header_ambiguous" HTTP;
    /// The name of the server is none.
    HttpHostInvalid "header_host_invalid" HTTP;
    /// Both `Content-Length` and `Transfer-Encoding`.
    HttpSmuggling "request_field_smuggling" HTTP;
    /// A head that is longer than the limit, or has too many fields.
    HttpHeadTooLong "request_headers_too_long" HTTP;
    /// The same of a response.
    HttpResponseHeadTooLong "response_headers_too_long" HTTP;
    /// More requests wait for responses than the limit.
    HttpTooManyOpen "too_many_open_transactions" HTTP;
    /// Compressed data are broken.
    HttpDecompression "gzip_decompression_failed" HTTP;
    /// Compressed data become more than the limits allow.
    HttpBomb "compression_bomb" HTTP;
    /// More codings upon one another than the limit.
    HttpTooManyCodings "too_many_encoding_layers" HTTP;
    /// `Content-Encoding` is one that is not known.
    HttpUnknownCoding "abnormal_ce_header" HTTP;
    /// A multipart body without a boundary, or one that does not begin with it.
    HttpMultipart "multipart_generic_error" HTTP;

    /// The client does not begin with the preface (RFC 9113 §3.4).
    Http2Magic "invalid_client_magic" HTTP2;
    /// A frame is shorter than what has to be in it.
    Http2FrameLength "invalid_frame_length" HTTP2;
    /// A frame is not where it may be, or has more padding than bytes.
    Http2FrameData "invalid_frame_data" HTTP2;
    /// A header block that cannot be read.
    Http2Header "invalid_header" HTTP2;
    /// `:authority` and `host` name different servers.
    Http2AuthorityMismatch "authority_host_mismatch" HTTP2;
    /// A header block that is longer than the limit, or has too many fields.
    Http2HeaderTooLong "reassembly_limit_reached" HTTP2;
    /// More streams are open than the limit.
    Http2TooManyStreams "too_many_streams" HTTP2;

    /// A message that cannot be read.
    DnsMalformed "malformed_data" DNS;
    /// A query whose header says that it is a response, or the other way round.
    DnsNotRequest "not_request" DNS;
    /// The same of the other side.
    DnsNotResponse "not_response" DNS;
    /// The reserved bit is set.
    DnsZFlag "z_flag_set" DNS;
    /// An operation that does not exist.
    DnsOpcode "invalid_opcode" DNS;

    /// A record of a type that does not exist.
    TlsRecordType "invalid_record_type" TLS;
    /// A record longer than allowed.
    TlsRecordLength "invalid_record_length" TLS;
    /// A record of a version that does not exist.
    TlsRecordVersion "invalid_record_version" TLS;
    /// A handshake message that cannot be read, or is longer than the limit.
    TlsHandshake "invalid_handshake_message" TLS;
    /// A certificate that cannot be read.
    TlsCertificate "invalid_certificate" TLS;
    /// A name of the server that is none.
    TlsSni "invalid_sni" TLS;
    /// A heartbeat that asks for more than it has.
    TlsHeartbeat "overflow_heartbeat_message" TLS;

    /// A banner that is none.
    SshBanner "invalid_banner" SSH;
    /// A banner longer than allowed (RFC 4253 §4.2).
    SshLongBanner "long_banner" SSH;
    /// A packet whose length cannot be.
    SshRecord "invalid_record" SSH;

    /// A line that is no reply.
    SmtpReply "invalid_reply" SMTP;
    /// A reply without a command.
    SmtpUnmatchedReply "unable_to_match_reply_with_request" SMTP;
    /// A command longer than allowed.
    SmtpLongCommand "max_command_line_len_exceeded" SMTP;
    /// A reply longer than allowed.
    SmtpLongReply "max_reply_line_len_exceeded" SMTP;
    /// `BDAT` without a size.
    SmtpChunk "bdat_command_malformed" SMTP;
    /// A server did not accept `DATA` and the client sent a mail.
    SmtpDataRejected "data_command_rejected" SMTP;
    /// A line of base64 that is none.
    MimeBase64 "mime_invalid_base64" SMTP;
    /// The header of a mail or part is longer than the limit.
    MimeLongHeader "mime_long_header" SMTP;
    /// More multiparts within multiparts than the limit.
    MimeDepth "mime_boundary_too_deep" SMTP;

    /// A command longer than allowed.
    FtpLongCommand "ftp_request_command_too_long" FTP;
    /// A reply longer than allowed.
    FtpLongReply "ftp_response_command_too_long" FTP;
}

impl AnomalyKind {
    /// The layer as EVE names it: identification, or a parser.
    pub const fn layer(self) -> &'static str {
        if self.protocol().is_some() { "proto_parser" } else { "proto_detect" }
    }

    /// Whether a bound was exceeded, so that what is beyond it was not looked at.
    pub const fn is_limit(self) -> bool {
        matches!(
            self,
            Self::HttpHeadTooLong
                | Self::HttpResponseHeadTooLong
                | Self::HttpTooManyOpen
                | Self::HttpBomb
                | Self::HttpTooManyCodings
                | Self::Http2HeaderTooLong
                | Self::Http2TooManyStreams
                | Self::SmtpLongCommand
                | Self::SmtpLongReply
                | Self::MimeLongHeader
                | Self::MimeDepth
                | Self::SshLongBanner
                | Self::FtpLongCommand
                | Self::FtpLongReply
        )
    }

    /// As `app-layer-event` names it: `http.request_line_invalid`, `applayer_wrong_direction_first_data`.
    pub fn event(self) -> String {
        match self.protocol() {
            Some(protocol) => format!("{}.{}", protocol.name(), self.name()),
            None => self.name().to_owned(),
        }
    }

    /// By what [`event`](Self::event) gives.
    pub fn from_event(event: &str) -> Option<Self> {
        let (protocol, name) = match event.split_once('.') {
            Some((protocol, name)) => (Some(protocol), name),
            None => (None, event),
        };
        let mut all = Self::ALL.iter().copied();
        all.find(|kind| kind.name() == name && kind.protocol().map(Protocol::name) == protocol)
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// What is wrong.
    pub kind: AnomalyKind,
    /// In which transaction.
    pub transaction: Option<u64>,
    /// On which side.
    pub direction: Option<Direction>,
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
}
