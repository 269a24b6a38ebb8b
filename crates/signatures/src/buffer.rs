//! What a content is looked for in.

use crate::FlowSide;

/// One line of the table: variant, its name as a sticky buffer, older names of the same, content modifier, letter of a
/// pcre, whether a flow has several of them at a time, whether an engine here evaluates it.
macro_rules! buffers {
    ($($(#[$doc:meta])* $variant:ident $name:literal $old:expr, $modifier:expr, $pcre:expr, $several:literal $supported:literal;)*) => {
        /// A part of a packet, a stream or an application's message that rules look into, whatever the rule called it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Buffer {
            $($(#[$doc])* #[doc = concat!("`", $name, "`")] $variant,)*
        }

        const ROWS: &[Row] = &[
            $(Row { buffer: Buffer::$variant, name: $name, old: $old, modifier: $modifier, pcre: $pcre, several: $several, supported: $supported },)*
        ];
    };
}

#[derive(Debug)]
struct Row {
    buffer: Buffer,
    name: &'static str,
    old: &'static [&'static str],
    modifier: Option<&'static str>,
    pcre: Option<u8>,
    several: bool,
    supported: bool,
}

buffers! {
    /// The payload of a packet, or the bytes of a stream.
    Payload "pkt_data" &[], None, None, false true;
    HttpUri "http.uri" &[], Some("http_uri"), Some(b'U'), false true;
    HttpUriRaw "http.uri.raw" &[], Some("http_raw_uri"), Some(b'I'), false true;
    HttpMethod "http.method" &[], Some("http_method"), Some(b'M'), false true;
    HttpHeader "http.header" &[], Some("http_header"), Some(b'H'), false true;
    HttpHeaderRaw "http.header.raw" &[], Some("http_raw_header"), Some(b'D'), false true;
    HttpCookie "http.cookie" &[], Some("http_cookie"), Some(b'C'), false true;
    HttpUserAgent "http.user_agent" &[], Some("http_user_agent"), Some(b'V'), false true;
    HttpHost "http.host" &[], Some("http_host"), Some(b'W'), false true;
    HttpHostRaw "http.host.raw" &[], Some("http_raw_host"), Some(b'Z'), false true;
    HttpRequestBody "http.request_body" &[], Some("http_client_body"), Some(b'P'), false true;
    HttpResponseBody "http.response_body" &[], Some("http_server_body"), Some(b'Q'), false true;
    HttpStatCode "http.stat_code" &[], Some("http_stat_code"), Some(b'S'), false true;
    HttpStatMsg "http.stat_msg" &[], Some("http_stat_msg"), Some(b'Y'), false true;
    HttpAccept "http.accept" &["http_accept"], None, None, false true;
    HttpAcceptEncoding "http.accept_enc" &["http_accept_enc"], None, None, false true;
    HttpAcceptLanguage "http.accept_lang" &["http_accept_lang"], None, None, false true;
    HttpConnection "http.connection" &["http_connection"], None, None, false true;
    HttpContentLength "http.content_len" &["http_content_len"], None, None, false true;
    HttpContentType "http.content_type" &["http_content_type"], None, None, false true;
    HttpHeaderNames "http.header_names" &["http_header_names"], None, None, false true;
    HttpProtocol "http.protocol" &["http_protocol"], None, None, false true;
    HttpReferer "http.referer" &["http_referer"], None, None, false true;
    HttpRequestLine "http.request_line" &["http_request_line"], None, None, false true;
    HttpResponseLine "http.response_line" &["http_response_line"], None, None, false true;
    HttpStart "http.start" &["http_start"], None, None, false true;
    HttpServer "http.server" &[], None, None, false true;
    HttpLocation "http.location" &[], None, None, false true;
    HttpRequestHeader "http.request_header" &[], None, None, true true;
    HttpResponseHeader "http.response_header" &[], None, None, true true;
    FileData "file.data" &["file_data"], None, None, true true;
    FileName "file.name" &[], None, None, true true;
    FileMagic "file.magic" &[], None, None, true true;
    DnsQuery "dns.query" &["dns_query"], None, None, true true;
    DnsQueryName "dns.query.name" &[], None, None, true true;
    DnsAnswerName "dns.answer.name" &[], None, None, true true;
    DnsQueriesRrname "dns.queries.rrname" &[], None, None, true true;
    DnsAnswersRrname "dns.answers.rrname" &[], None, None, true true;
    DnsAuthoritiesRrname "dns.authorities.rrname" &[], None, None, true true;
    DnsAdditionalsRrname "dns.additionals.rrname" &[], None, None, true true;
    DnsResponseRrname "dns.response.rrname" &[], None, None, true true;
    TlsSni "tls.sni" &["tls_sni"], None, None, false true;
    TlsCertSubject "tls.cert_subject" &["tls_cert_subject"], None, None, true true;
    TlsCertIssuer "tls.cert_issuer" &["tls_cert_issuer"], None, None, false true;
    TlsCertSerial "tls.cert_serial" &["tls_cert_serial"], None, None, false true;
    TlsCertFingerprint "tls.cert_fingerprint" &["tls_cert_fingerprint"], None, None, false true;
    TlsCerts "tls.certs" &[], None, None, true true;
    TlsSubjectAltName "tls.subjectaltname" &[], None, None, true true;
    TlsAlpn "tls.alpn" &[], None, None, true true;
    TlsRandom "tls.random" &[], None, None, false true;
    TlsRandomTime "tls.random_time" &[], None, None, false true;
    TlsRandomBytes "tls.random_bytes" &[], None, None, false true;
    Ja3Hash "ja3.hash" &["ja3_hash"], None, None, false true;
    Ja3String "ja3.string" &["ja3_string"], None, None, false true;
    Ja3sHash "ja3s.hash" &[], None, None, false true;
    Ja3sString "ja3s.string" &[], None, None, false true;
    Ja4Hash "ja4.hash" &[], None, None, false true;
    SshProto "ssh.proto" &["ssh_proto"], None, None, false true;
    SshSoftware "ssh.software" &["ssh_software"], None, None, false true;
    SshHassh "ssh.hassh" &["ssh-hassh"], None, None, false true;
    SshHasshString "ssh.hassh.string" &["ssh-hassh-string"], None, None, false true;
    SshHasshServer "ssh.hassh.server" &["ssh-hassh-server"], None, None, false true;
    SshHasshServerString "ssh.hassh.server.string" &["ssh-hassh-server-string"], None, None, false true;
    SmtpHelo "smtp.helo" &[], None, None, false true;
    SmtpMailFrom "smtp.mail_from" &[], None, None, false true;
    SmtpRcptTo "smtp.rcpt_to" &[], None, None, true true;
    EmailFrom "email.from" &[], None, None, false true;
    EmailTo "email.to" &[], None, None, false true;
    EmailCc "email.cc" &[], None, None, false true;
    EmailSubject "email.subject" &[], None, None, false true;
    EmailDate "email.date" &[], None, None, false true;
    EmailMessageId "email.message_id" &[], None, None, false true;
    EmailXMailer "email.x_mailer" &[], None, None, false true;
    EmailUrl "email.url" &[], None, None, true true;
    EmailReceived "email.received" &[], None, None, true true;
    FtpCommand "ftp.command" &[], None, None, false true;
    FtpCommandData "ftp.command_data" &[], None, None, false true;
    FtpReply "ftp.reply" &[], None, None, true true;
    FtpCompletionCode "ftp.completion_code" &[], None, None, true true;
    IpSource "ip.src" &[], None, None, false true;
    IpDestination "ip.dst" &[], None, None, false true;
    Base64Data "base64_data" &[], None, None, false true;
    Ipv4Header "ipv4.hdr" &[], None, None, false true;
    Ipv6Header "ipv6.hdr" &[], None, None, false true;
    TcpHeader "tcp.hdr" &[], None, None, false true;
    UdpHeader "udp.hdr" &[], None, None, false true;
    Icmpv4Header "icmpv4.hdr" &[], None, None, false true;
    Icmpv6Header "icmpv6.hdr" &[], None, None, false true;
    DcerpcStubData "dcerpc.stub_data" &["dce_stub_data"], None, None, false false;
    SmbNamedPipe "smb.named_pipe" &["smb_named_pipe"], None, None, false false;
    SmbShare "smb.share" &["smb_share"], None, None, false false;
    SmbNtlmsspUser "smb.ntlmssp_user" &[], None, None, false false;
    SmbNtlmsspDomain "smb.ntlmssp_domain" &[], None, None, false false;
    SipMethod "sip.method" &[], None, None, false false;
    SipUri "sip.uri" &[], None, None, false false;
    SipRequestLine "sip.request_line" &[], None, None, false false;
    SipStatCode "sip.stat_code" &[], None, None, false false;
    SipStatMsg "sip.stat_msg" &[], None, None, false false;
    SipProtocol "sip.protocol" &[], None, None, false false;
    SipResponseLine "sip.response_line" &[], None, None, false false;
    Krb5Cname "krb5.cname" &["krb5_cname"], None, None, true false;
    Krb5Sname "krb5.sname" &["krb5_sname"], None, None, true false;
    SnmpCommunity "snmp.community" &[], None, None, false false;
    RfbName "rfb.name" &[], None, None, false false;
    QuicSni "quic.sni" &[], None, None, false false;
    QuicUa "quic.ua" &[], None, None, false false;
    QuicVersion "quic.version" &[], None, None, false false;
    QuicCyuHash "quic.cyu.hash" &[], None, None, true false;
    QuicCyuString "quic.cyu.string" &[], None, None, true false;
    MqttProtocolString "mqtt.protocol_string" &[], None, None, false false;
    MqttClientId "mqtt.connect.clientid" &[], None, None, false false;
    MqttUsername "mqtt.connect.username" &[], None, None, false false;
    MqttPassword "mqtt.connect.password" &[], None, None, false false;
    MqttWillTopic "mqtt.connect.willtopic" &[], None, None, false false;
    MqttWillMessage "mqtt.connect.willmessage" &[], None, None, false false;
    MqttPublishTopic "mqtt.publish.topic" &[], None, None, false false;
    MqttPublishMessage "mqtt.publish.message" &[], None, None, false false;
    MqttSubscribeTopic "mqtt.subscribe.topic" &[], None, None, true false;
    MqttUnsubscribeTopic "mqtt.unsubscribe.topic" &[], None, None, true false;
    IkeInitSpi "ike.init_spi" &[], None, None, false false;
    IkeRespSpi "ike.resp_spi" &[], None, None, false false;
    IkeVendor "ike.vendor" &[], None, None, true false;
    WebsocketPayload "websocket.payload" &[], None, None, false false;
    PgsqlQuery "pgsql.query" &[], None, None, false false;
    EnipProductName "enip.product_name" &[], None, None, false false;
    /// A number, which rules compare and do not look into: bytes of a file.
    FileSize "filesize" &[], None, None, true true;
    /// Likewise.
    DnsOpcode "dns.opcode" &[], None, None, false true;
    /// Likewise.
    DnsRcode "dns.rcode" &[], None, None, false true;
    /// Likewise, of each question of a request and each answer of a response.
    DnsRrtype "dns.rrtype" &[], None, None, true true;
    /// Likewise.
    TlsVersion "tls.version" &[], None, None, false true;
    /// Likewise.
    TlsChainLength "tls.cert_chain_len" &[], None, None, false true;
}

impl Buffer {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|row| row.buffer)
    }

    fn row(self) -> &'static Row {
        // The table is in the order of the variants.
        &ROWS[self as usize]
    }

    /// Suricata's name of it as a sticky buffer.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Can a flow or message have several at a time, so that choosing it again looks at all of them anew?
    pub fn is_several(self) -> bool {
        self.row().several
    }

    /// Is it one that the inspection of this project evaluates?
    pub fn is_supported(self) -> bool {
        self.row().supported
    }

    /// Is it a number, which is no sticky buffer?
    pub fn is_number(self) -> bool {
        matches!(
            self,
            Self::FileSize
                | Self::DnsOpcode
                | Self::DnsRcode
                | Self::DnsRrtype
                | Self::TlsVersion
                | Self::TlsChainLength
        )
    }

    /// The side whose messages alone have it: of the server requests, of the client responses.
    pub fn side(self) -> Option<FlowSide> {
        use Buffer::*;
        match self {
            HttpUri | HttpUriRaw | HttpMethod | HttpUserAgent | HttpHost | HttpHostRaw
            | HttpRequestBody | HttpAccept | HttpAcceptEncoding | HttpAcceptLanguage
            | HttpReferer | HttpRequestLine | HttpRequestHeader | TlsSni | SmtpHelo
            | SmtpMailFrom | SmtpRcptTo | FtpCommand | FtpCommandData | Ja3Hash | Ja3String => {
                Some(FlowSide::Server)
            }
            HttpResponseBody | HttpStatCode | HttpStatMsg | HttpResponseLine | HttpServer
            | HttpLocation | HttpResponseHeader | FtpReply | FtpCompletionCode | Ja3sHash
            | Ja3sString => Some(FlowSide::Client),
            _ => None,
        }
    }

    /// By a name of a sticky buffer, new or old.
    pub fn from_sticky(name: &str) -> Option<Self> {
        let row = ROWS.iter().find(|row| row.name == name || row.old.contains(&name))?;
        Some(row.buffer).filter(|buffer| !buffer.is_number())
    }

    /// By a content modifier of Snort 2.9.
    pub fn from_modifier(name: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.modifier == Some(name)).map(|row| row.buffer)
    }

    /// By the letter behind a regular expression.
    pub fn from_pcre(letter: u8) -> Option<Self> {
        ROWS.iter().find(|row| row.pcre == Some(letter)).map(|row| row.buffer)
    }

    /// All names: sticky, older, modifiers.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        let names = |row: &'static Row| {
            [row.name].into_iter().chain(row.old.iter().copied()).chain(row.modifier)
        };
        ROWS.iter().filter(|row| !row.buffer.is_number()).flat_map(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_its_names_are_unique() {
        assert!(Buffer::all().enumerate().all(|(at, buffer)| buffer as usize == at));
        let mut names: Vec<&str> = Buffer::names().collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        let is_found = |buffer: Buffer| Buffer::from_sticky(buffer.name()) == Some(buffer);
        assert!(Buffer::all().all(|buffer| is_found(buffer) != buffer.is_number()));
    }
}
