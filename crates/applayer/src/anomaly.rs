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
    /// The first line of a request ends with the stream.
    HttpLineIncomplete "request_line_incomplete" HTTP;
    /// Blanks are before the first word of a request.
    HttpLeadingBlank "request_line_leading_whitespace" HTTP;
    /// Something else than spaces is behind the method.
    HttpMethodDelimiter "method_delim_non_compliant" HTTP;
    /// Something else than spaces is behind the target.
    HttpUriDelimiter "uri_delim_non_compliant" HTTP;
    /// A field of a request with a bad name.
    HttpRequestField "request_header_invalid" HTTP;
    /// A field of a response with a bad name.
    HttpResponseField "response_header_invalid" HTTP;
    /// A line of a request without a colon.
    HttpRequestColon "request_field_missing_colon" HTTP;
    /// A line of a response without a colon.
    HttpResponseColon "response_field_missing_colon" HTTP;
    /// The first line behind that of a request goes on with a field.
    HttpRequestFolding "invalid_request_field_folding" HTTP;
    /// The first line behind that of a response goes on with a field.
    HttpResponseFolding "invalid_response_field_folding" HTTP;
    /// Many fields of a request have the name of one before.
    HttpRequestRepetitions "request_header_repetition" HTTP;
    /// Many fields of a response have the name of one before.
    HttpResponseRepetitions "response_header_repetition" HTTP;
    /// `Authorization` names a scheme other than Basic, Digest and Bearer.
    HttpAuthorization "request_auth_unrecognized" HTTP;
    /// `Content-Length` of a request is not a number.
    HttpRequestLength "invalid_content_length_field_in_request" HTTP;
    /// `Content-Length` of a response is not a number.
    HttpResponseLength "invalid_content_length_field_in_response" HTTP;
    /// Several `Content-Length` of a request differ.
    HttpRequestLengths "duplicate_content_length_field_in_request" HTTP;
    /// Several `Content-Length` of a response differ.
    HttpResponseLengths "duplicate_content_length_field_in_response" HTTP;
    /// Bytes that are no request follow a request.
    HttpBodyUnexpected "request_body_unexpected" HTTP;
    /// The size of a chunk of a request is no number.
    HttpRequestChunk "invalid_request_chunk_len" HTTP;
    /// The size of a chunk of a response is no number.
    HttpResponseChunk "invalid_response_chunk_len" HTTP;
    /// The line of the size of a chunk of a request has more than the size.
    HttpRequestExtension "request_chunk_extension" HTTP;
    /// The line of the size of a chunk of a response has more than the size.
    HttpResponseExtension "response_chunk_extension" HTTP;
    /// `Transfer-Encoding` of a request is one that is not known.
    HttpTransferCoding "invalid_transfer_encoding_value_in_request" HTTP;
    /// `Transfer-Encoding` of a response is one that is not known.
    HttpResponseTransferCoding "invalid_transfer_encoding_value_in_response" HTTP;
    /// `Transfer-Encoding` of a response has more than `chunked`.
    HttpOddChunked "response_abnormal_transfer_encoding" HTTP;
    /// Chunks in a response of a version before HTTP/1.1.
    HttpChunkedOld "response_chunked_old_proto" HTTP;
    /// `100 Continue` came twice.
    HttpContinued "100_continue_already_seen" HTTP;
    /// Ranges of a content in one body.
    HttpByteranges "response_multipart_byteranges" HTTP;
    /// `Content-Range` of a response is none.
    HttpRange "range_invalid" HTTP;
    /// A request of HTTP/1.1 without `Host`.
    HttpNoHost "missing_host_header" HTTP;
    /// Target and `Host` name different servers.
    HttpHostAmbiguous "host_header_ambiguous" HTTP;
    /// The name of the server in the target is none.
    HttpUriHostInvalid "request_uri_host_invalid" HTTP;
    /// The name of the server in `Host` is none.
    HttpHostInvalid "request_header_host_invalid" HTTP;
    /// The port of the server is not a number.
    HttpPortInvalid "invalid_server_port_in_request" HTTP;
    /// The port of the server is not from 1 to 65535.
    HttpAuthorityPort "invalid_authority_port" HTTP;
    /// `Host` names another port than that of the connection.
    HttpPortMismatch "request_server_port_tcp_port_mismatch" HTTP;
    /// Both `Content-Length` and `Transfer-Encoding`.
    HttpSmuggling "request_field_smuggling" HTTP;
    /// A head of a request that is longer than the limit.
    HttpHeadTooLong "request_field_too_long" HTTP;
    /// A head of a response that is longer than the limit.
    HttpResponseHeadTooLong "response_field_too_long" HTTP;
    /// A head of a request with more fields than the limit.
    HttpTooManyFields "request_too_many_headers" HTTP;
    /// A head of a response with more fields than the limit.
    HttpResponseTooManyFields "response_too_many_headers" HTTP;
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
    /// A line of the header of a part has no colon.
    HttpMultipartHeader "multipart_invalid_header" HTTP;
    /// A part has the name of a file and no content.
    HttpMultipartNoData "multipart_no_filedata" HTTP;
    /// The name of a file is longer than any file system has them.
    HttpNameTooLong "file_name_too_long" HTTP;

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
    /// A stream begins that was over, or that is before one that began.
    Http2StreamReuse "stream_id_reuse" HTTP2;
    /// `Content-Range` of a response is none.
    Http2Range "invalid_range" HTTP2;
    /// `:authority` names a user.
    Http2Userinfo "userinfo_in_uri" HTTP2;
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
    /// A handshake message that cannot be read.
    TlsHandshake "invalid_handshake_message" TLS;
    /// A handshake message that is longer than the limit.
    TlsHandshakeLength "handshake_invalid_length" TLS;
    /// A certificate that cannot be read.
    TlsCertificate "invalid_certificate" TLS;
    /// A name of the server that is none.
    TlsSni "invalid_sni" TLS;
    /// Names of the server more than once.
    TlsSeveralSni "multiple_sni_extensions" TLS;
    /// A name of the server of another kind than a host.
    TlsSniType "invalid_sni_type" TLS;
    /// Lengths within the name of the server that do not fit.
    TlsSniLength "invalid_sni_length" TLS;
    /// A heartbeat in the clear.
    TlsHeartbeatSeen "heartbeat_message" TLS;
    /// A heartbeat in the clear that is neither a request nor a response.
    TlsHeartbeatInvalid "invalid_heartbeat_message" TLS;
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
    /// The first reply is none that a server begins with.
    SmtpNoWelcome "no_server_welcome_message" SMTP;
    /// The server does not go over to TLS.
    SmtpTlsRejected "tls_rejected" SMTP;
    /// A mail began before the server asked for it.
    SmtpPipelined "invalid_pipelined_sequence" SMTP;
    /// A line of base64 that is none.
    MimeBase64 "mime_invalid_base64" SMTP;
    /// Digits of quoted-printable that are none.
    MimeQuoted "mime_invalid_qp" SMTP;
    /// The header of a mail or part is longer than the limit.
    MimeLongHeader "mime_long_header" SMTP;
    /// The name of a field has more than 75 bytes.
    MimeLongName "mime_long_header_name" SMTP;
    /// The value of a field has more than 2,000 bytes.
    MimeLongValue "mime_long_header_value" SMTP;
    /// A line has more than 998 bytes (RFC 5322 §2.1.1).
    MimeLongLine "mime_long_line" SMTP;
    /// A line of an encoded part has more than 76 bytes (RFC 2045 §6.7, §6.8).
    MimeLongEncoded "mime_long_enc_line" SMTP;
    /// A boundary is longer than the limit.
    MimeLongBoundary "mime_long_boundary" SMTP;
    /// The name of a file is longer than any file system has them.
    MimeLongFilename "mime_long_filename" SMTP;
    /// More multiparts within multiparts than the limit.
    MimeDepth "mime_boundary_too_deep" SMTP;

    /// A command longer than allowed.
    FtpLongCommand "request_command_too_long" FTP;
    /// A reply longer than allowed.
    FtpLongReply "response_command_too_long" FTP;
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
                | Self::HttpTooManyFields
                | Self::HttpResponseTooManyFields
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

    /// By what [`event`](Self::event) gives, in any case.
    pub fn from_event(event: &str) -> Option<Self> {
        let (protocol, name) = match event.split_once('.') {
            Some((protocol, name)) => (Some(protocol), name),
            None => (None, event),
        };
        let mut all = Self::ALL.iter().copied();
        all.find(|kind| {
            kind.name().eq_ignore_ascii_case(name)
                && match (kind.protocol(), protocol) {
                    (Some(own), Some(protocol)) => own.name().eq_ignore_ascii_case(protocol),
                    (own, protocol) => own.is_none() && protocol.is_none(),
                }
        })
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
