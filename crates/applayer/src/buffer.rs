//! The named parts of messages that rules look into.

macro_rules! buffers {
    ($($(#[$doc:meta])* $variant:ident $name:literal;)*) => {
        /// A part of an application's message. The names are those of Suricata's sticky buffers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Buffer {
            $($(#[$doc])* #[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Buffer {
            /// Each of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Suricata's name of it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

buffers! {
    HttpUri "http.uri";
    HttpUriRaw "http.uri.raw";
    HttpMethod "http.method";
    HttpHeader "http.header";
    HttpHeaderRaw "http.header.raw";
    HttpCookie "http.cookie";
    HttpUserAgent "http.user_agent";
    HttpHost "http.host";
    HttpHostRaw "http.host.raw";
    HttpRequestBody "http.request_body";
    HttpResponseBody "http.response_body";
    HttpStatCode "http.stat_code";
    HttpStatMsg "http.stat_msg";
    HttpAccept "http.accept";
    HttpAcceptEncoding "http.accept_enc";
    HttpAcceptLanguage "http.accept_lang";
    HttpConnection "http.connection";
    HttpContentLength "http.content_len";
    HttpContentType "http.content_type";
    HttpHeaderNames "http.header_names";
    HttpProtocol "http.protocol";
    HttpReferer "http.referer";
    HttpRequestLine "http.request_line";
    HttpResponseLine "http.response_line";
    HttpStart "http.start";
    HttpServer "http.server";
    HttpLocation "http.location";
    HttpRequestHeader "http.request_header";
    HttpResponseHeader "http.response_header";
    FileData "file.data";
    FileName "file.name";
    DnsQueryName "dns.query.name";
    DnsAnswerName "dns.answer.name";
    DnsQueriesRrname "dns.queries.rrname";
    DnsAnswersRrname "dns.answers.rrname";
    DnsAuthoritiesRrname "dns.authorities.rrname";
    DnsAdditionalsRrname "dns.additionals.rrname";
    TlsSni "tls.sni";
    TlsCertSubject "tls.cert_subject";
    TlsCertIssuer "tls.cert_issuer";
    TlsCertSerial "tls.cert_serial";
    TlsCertFingerprint "tls.cert_fingerprint";
    TlsCerts "tls.certs";
    TlsSubjectAltName "tls.subjectaltname";
    TlsAlpn "tls.alpn";
    TlsRandom "tls.random";
    TlsRandomTime "tls.random_time";
    TlsRandomBytes "tls.random_bytes";
    Ja3Hash "ja3.hash";
    Ja3String "ja3.string";
    Ja3sHash "ja3s.hash";
    Ja3sString "ja3s.string";
    Ja4Hash "ja4.hash";
    SshProto "ssh.proto";
    SshSoftware "ssh.software";
    SshHassh "ssh.hassh";
    SshHasshString "ssh.hassh.string";
    SshHasshServer "ssh.hassh.server";
    SshHasshServerString "ssh.hassh.server.string";
    SmtpHelo "smtp.helo";
    SmtpMailFrom "smtp.mail_from";
    SmtpRcptTo "smtp.rcpt_to";
    EmailFrom "email.from";
    EmailTo "email.to";
    EmailCc "email.cc";
    EmailSubject "email.subject";
    EmailDate "email.date";
    EmailMessageId "email.message_id";
    EmailXMailer "email.x_mailer";
    EmailUrl "email.url";
    EmailReceived "email.received";
    FtpCommand "ftp.command";
    FtpCommandData "ftp.command_data";
    FtpReply "ftp.reply";
    FtpCompletionCode "ftp.completion_code";
}
