//! Transactions of applications, their files, and what is odd in them.

use applayer::{
    Certificate, Data, Direction, Dns, DnsData, DnsRecord, Email, File, Ftp, Http, Smtp, Ssh, Tls,
    Transaction,
};

use super::{Eve, Origin, names, timestamp};
use crate::json::{self, Object};

/// Something odd in what an application says.
#[derive(Clone, Copy, Debug)]
pub struct ApplicationAnomaly<'a> {
    /// Its name, without that of the protocol.
    pub event: &'a str,
    /// `proto_detect` or `proto_parser`.
    pub layer: &'a str,
    /// The application, by Suricata's name.
    pub application: Option<&'a str>,
    /// The number of the transaction.
    pub transaction_id: Option<u64>,
}

impl Eve {
    /// Appends the line of a transaction. Its event type is that of its protocol.
    pub fn transaction(&self, origin: &Origin<'_>, transaction: &Transaction, out: &mut Vec<u8>) {
        let event_type = match &transaction.data {
            Data::Http(_) => "http",
            Data::Dns(_) => "dns",
            Data::Tls(_) => "tls",
            Data::Ssh(_) => "ssh",
            Data::Smtp(_) => "smtp",
            Data::Ftp(_) => "ftp",
            _ => return,
        };
        let mut line = self.begin(event_type, origin, out);
        line.number("tx_id", transaction.id);
        object(&mut line, transaction);
        line.end();
        out.push(b'\n');
    }

    /// Appends the line of event type `fileinfo`.
    pub fn file(
        &self,
        origin: &Origin<'_>,
        application: Option<&str>,
        transaction: Option<&Transaction>,
        file: &File,
        out: &mut Vec<u8>,
    ) {
        let mut line = self.begin("fileinfo", origin, out);
        if let Some(transaction) = transaction {
            object(&mut line, transaction);
        }
        if let Some(name) = application {
            line.string("app_proto", name);
        }
        let mut info = line.object("fileinfo");
        file_info(&mut info, file);
        info.end();
        line.end();
        out.push(b'\n');
    }

    /// Appends the line of event type `anomaly` of something odd in an application.
    pub fn application_anomaly(
        &self,
        origin: &Origin<'_>,
        anomaly: &ApplicationAnomaly<'_>,
        out: &mut Vec<u8>,
    ) {
        let mut line = self.begin("anomaly", origin, out);
        if let Some(id) = anomaly.transaction_id {
            line.number("tx_id", id);
        }
        let mut object = line.object("anomaly");
        if let Some(name) = anomaly.application {
            object.string("app_proto", name);
        }
        object.string("type", "applayer");
        object.string("event", anomaly.event);
        object.string("layer", anomaly.layer);
        object.end();
        line.end();
        out.push(b'\n');
    }
}

fn file_info(info: &mut Object<'_>, file: &File) {
    info.bytes("filename", &file.name);
    info.boolean("gaps", file.has_gaps);
    info.string("state", file.state.name());
    if let Some(digests) = &file.digests {
        hex(info, "md5", &digests.md5);
        hex(info, "sha1", &digests.sha1);
        hex(info, "sha256", &digests.sha256);
    }
    info.boolean("stored", false);
    info.number("size", file.size);
    if let Some((first, last, _)) = file.range {
        info.number("start", first);
        info.number("end", last);
    }
    info.number("tx_id", file.transaction);
}

/// The files of an alert; nothing without one.
pub(super) fn files<'a>(line: &mut Object<'_>, files: impl Iterator<Item = &'a File>) {
    let mut files = files.peekable();
    if files.peek().is_none() {
        return;
    }
    let out = line.value("files");
    for (number, file) in files.enumerate() {
        out.extend_from_slice(if number == 0 { b"[" } else { b"," });
        let mut info = Object::begin(out);
        file_info(&mut info, file);
        info.end();
    }
    out.push(b']');
}

/// The object of a transaction, by the name of its protocol.
pub(super) fn object(line: &mut Object<'_>, transaction: &Transaction) {
    match &transaction.data {
        Data::Http(own) => http(line, own),
        Data::Dns(own) => dns(line, own),
        Data::Tls(own) => tls(line, own),
        Data::Ssh(own) => ssh(line, own),
        Data::Smtp(own) => smtp(line, own),
        Data::Ftp(own) => ftp(line, own),
        _ => {}
    }
}

fn hex(object: &mut Object<'_>, name: &'static str, bytes: &[u8]) {
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    object.plain(name, text);
}

fn some(object: &mut Object<'_>, name: &'static str, value: Option<&[u8]>) {
    if let Some(value) = value {
        object.bytes(name, value);
    }
}

fn filled(object: &mut Object<'_>, name: &'static str, value: &[u8]) {
    some(object, name, Some(value).filter(|value| !value.is_empty()));
}

fn http(line: &mut Object<'_>, own: &Http) {
    let mut http = line.object("http");
    some(&mut http, "hostname", own.host.as_deref());
    if let Some(port) = own.port {
        http.number("http_port", port);
    }
    filled(&mut http, "url", &own.uri_raw);
    some(&mut http, "http_user_agent", own.header(Direction::ToServer, "user-agent"));
    some(&mut http, "xff", own.header(Direction::ToServer, "x-forwarded-for"));
    let kind = own.header(Direction::ToClient, "content-type");
    // Without its parameters.
    let kind = kind.map(|kind| kind.split(|byte| *byte == b';').next().unwrap_or_default());
    some(&mut http, "http_content_type", kind);
    some(&mut http, "http_refer", own.header(Direction::ToServer, "referer"));
    filled(&mut http, "http_method", &own.method);
    let protocol = match own.request_protocol.is_empty() {
        true => &own.response_protocol,
        false => &own.request_protocol,
    };
    filled(&mut http, "protocol", protocol);
    if let Some(status) = own.status {
        http.number("status", status);
    }
    some(&mut http, "redirect", own.header(Direction::ToClient, "location"));
    if let Some(raw) = own.header(Direction::ToClient, "content-range") {
        let mut range = http.object("content_range");
        range.bytes("raw", raw);
        let (ends, size) = content_range(raw);
        if let Some((start, end)) = ends {
            range.number("start", start);
            range.number("end", end);
        }
        if let Some(size) = size {
            range.number("size", size);
        }
        range.end();
    }
    http.number("length", own.body_bytes[1]);
    http.end();
}

/// First and last byte, and the size of the whole, of a `Content-Range` (RFC 9110 §14.4), as far as they are numbers.
fn content_range(raw: &[u8]) -> (Option<(u64, u64)>, Option<u64>) {
    let text = std::str::from_utf8(raw).unwrap_or_default();
    let unit = text.get(..5).filter(|unit| unit.eq_ignore_ascii_case("bytes"));
    let Some((range, size)) = unit.and_then(|_| text[5..].trim().split_once('/')) else {
        return (None, None);
    };
    // Suricata's numbers are signed.
    let number = |text: &str| text.trim().parse().ok().filter(|own| *own <= i64::MAX as u64);
    let ends = range.split_once('-').and_then(|(first, last)| number(first).zip(number(last)));
    (ends, number(size))
}

/// In an alert: what is asked as a list, an answer as an object without its records.
pub(super) fn in_alert(line: &mut Object<'_>, transaction: &Transaction) {
    let Data::Dns(own) = &transaction.data else { return object(line, transaction) };
    let mut dns = line.object("dns");
    dns.number("version", 2_u8);
    if own.is_response() {
        let mut answer = dns.object("answer");
        message(&mut answer, own);
        rcode(&mut answer, own);
        answer.end();
    } else {
        let out = dns.value("query");
        out.push(b'[');
        for (number, question) in own.questions.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            let mut query = Object::begin(out);
            query.string("type", "query");
            query.number("id", own.id);
            query.bytes("rrname", &question.name);
            kind(&mut query, question.kind);
            query.number("tx_id", transaction.id);
            query.number("opcode", own.opcode());
            query.end();
        }
        out.push(b']');
    }
    dns.end();
}

/// As version 2 of Suricata's events of DNS: a query has a line, and an answer has one.
fn dns(line: &mut Object<'_>, own: &Dns) {
    let mut dns = line.object("dns");
    message(&mut dns, own);
    if own.is_response() {
        rcode(&mut dns, own);
        records(&mut dns, "answers", &own.answers);
        grouped(&mut dns, &own.answers);
        records(&mut dns, "authorities", &own.authorities);
    }
    dns.end();
}

/// The header, and the first question.
fn message(dns: &mut Object<'_>, own: &Dns) {
    dns.number("version", 2_u8);
    dns.string("type", if own.is_response() { "answer" } else { "query" });
    dns.number("id", own.id);
    if own.is_response() {
        dns.plain("flags", format_args!("{:x}", own.flags));
        dns.boolean("qr", true);
        for (name, bit) in [("aa", 0x400), ("tc", 0x200), ("rd", 0x100), ("ra", 0x80)] {
            if own.flags & bit != 0 {
                dns.boolean(name, true);
            }
        }
    }
    if own.flags & 0x40 != 0 {
        dns.boolean("z", true);
    }
    dns.number("opcode", own.opcode());
    if let Some(question) = own.questions.first() {
        dns.bytes("rrname", &question.name);
        kind(dns, question.kind);
    }
}

fn rcode(dns: &mut Object<'_>, own: &Dns) {
    match names::rcode(own.rcode) {
        Some(name) => dns.string("rcode", name),
        None => dns.plain("rcode", own.rcode),
    }
}

/// Data of answers by type, of those that are one text.
fn grouped(dns: &mut Object<'_>, answers: &[DnsRecord]) {
    let mut groups: Vec<(&'static str, Vec<Vec<u8>>)> = Vec::new();
    for record in answers {
        let text = match &record.data {
            DnsData::A(address) => address.to_string().into_bytes(),
            DnsData::Aaaa(address) => address.to_string().into_bytes(),
            DnsData::Name(name) | DnsData::Mx { name, .. } => name.clone(),
            DnsData::Txt(texts) => texts.concat(),
            _ => continue,
        };
        let Some(kind) = names::record_kind(record.kind) else { continue };
        match groups.iter_mut().find(|(own, _)| *own == kind) {
            Some((_, texts)) => texts.push(text),
            None => groups.push((kind, vec![text])),
        }
    }
    if groups.is_empty() {
        return;
    }
    let mut object = dns.object("grouped");
    for (kind, texts) in groups {
        object.list(kind, texts.iter().map(Vec::as_slice));
    }
    object.end();
}

fn kind(object: &mut Object<'_>, kind: u16) {
    match names::record_kind(kind) {
        Some(name) => object.string("rrtype", name),
        None => object.plain("rrtype", format_args!("TYPE{kind}")),
    }
}

fn records(dns: &mut Object<'_>, name: &'static str, records: &[DnsRecord]) {
    if records.is_empty() {
        return;
    }
    let out = dns.value(name);
    out.push(b'[');
    for (number, record) in records.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        let mut own = Object::begin(out);
        own.bytes("rrname", &record.name);
        kind(&mut own, record.kind);
        own.number("ttl", record.ttl_s);
        record_data(&mut own, &record.data);
        own.end();
    }
    out.push(b']');
}

fn record_data(own: &mut Object<'_>, data: &DnsData) {
    match data {
        DnsData::A(address) => own.plain("rdata", address),
        DnsData::Aaaa(address) => own.plain("rdata", address),
        DnsData::Name(name) | DnsData::Mx { name, .. } => own.bytes("rdata", name),
        DnsData::Txt(texts) => own.bytes("rdata", &texts.concat()),
        DnsData::Soa { mname, rname, numbers } => {
            let mut soa = own.object("soa");
            soa.bytes("mname", mname);
            soa.bytes("rname", rname);
            for (name, number) in
                ["serial", "refresh", "retry", "expire", "minimum"].into_iter().zip(numbers)
            {
                soa.number(name, *number);
            }
            soa.end();
        }
        DnsData::Srv { priority, weight, port, name } => {
            let mut srv = own.object("srv");
            srv.number("priority", *priority);
            srv.number("weight", *weight);
            srv.number("port", *port);
            srv.bytes("name", name);
            srv.end();
        }
        DnsData::Sshfp { algorithm, kind, fingerprint } => {
            let mut sshfp = own.object("sshfp");
            let text: Vec<String> = fingerprint.iter().map(|b| format!("{b:02x}")).collect();
            sshfp.plain("fingerprint", text.join(":"));
            sshfp.number("algo", *algorithm);
            sshfp.number("type", *kind);
            sshfp.end();
        }
        _ => {}
    }
}

fn tls(line: &mut Object<'_>, own: &Tls) {
    let mut tls = line.object("tls");
    let [client, server] = &own.certificates;
    if let Some(own) = server.first().filter(|own| own.is_read) {
        certificate(&mut tls, own);
        if !own.names.is_empty() {
            tls.list("subjectaltname", own.names.iter().map(|name| name.as_bytes()));
        }
    }
    if let Some(own) = client.first().filter(|own| own.is_read) {
        let mut object = tls.object("client");
        certificate(&mut object, own);
        object.end();
    }
    if own.is_resumed {
        tls.boolean("session_resumed", true);
    }
    some(&mut tls, "sni", own.sni.as_deref());
    match names::tls_version(own.version) {
        Some(name) => tls.string("version", name),
        None => tls.plain("version", format_args!("0x{:04x}", own.version)),
    }
    for (name, ja3) in [("ja3", &own.ja3), ("ja3s", &own.ja3s)] {
        if let Some((text, hash)) = ja3 {
            let mut object = tls.object(name);
            hex(&mut object, "hash", hash);
            object.string("string", text);
            object.end();
        }
    }
    if let Some(ja4) = &own.ja4 {
        tls.string("ja4", ja4);
    }
    if !own.alpn_offered.is_empty() {
        tls.list("client_alpns", own.alpn_offered.iter().map(Vec::as_slice));
    }
    if let Some(alpn) = &own.alpn {
        tls.list("server_alpns", [alpn.as_slice()]);
    }
    tls.end();
}

fn certificate(object: &mut Object<'_>, own: &Certificate) {
    object.string("subject", &own.subject);
    object.string("issuerdn", &own.issuer);
    object.string("serial", &own.serial);
    object.string("fingerprint", &own.fingerprint);
    date(object, "notbefore", own.not_before);
    date(object, "notafter", own.not_after);
}

/// As Suricata writes dates of certificates: `2017-03-06T06:21:46`. What is before 1970 is left out.
fn date(tls: &mut Object<'_>, name: &'static str, seconds: i64) {
    let ns = u64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1_000_000_000));
    if let Some(ns) = ns {
        let mut text = Vec::new();
        crate::time::write_timestamp(ns, &mut text);
        tls.bytes(name, &text[..19]);
    }
}

fn ssh(line: &mut Object<'_>, own: &Ssh) {
    let mut ssh = line.object("ssh");
    for (name, side) in ["client", "server"].into_iter().zip(&own.sides) {
        let Some(side) = side else { continue };
        let mut object = ssh.object(name);
        object.bytes("proto_version", &side.protocol);
        object.bytes("software_version", &side.software);
        if let (Some(hash), Some(text)) = (&side.hassh, &side.hassh_string) {
            let mut hassh = object.object("hassh");
            hassh.string("hash", hash);
            hassh.string("string", text);
            hassh.end();
        }
        object.end();
    }
    ssh.end();
}

fn smtp(line: &mut Object<'_>, own: &Smtp) {
    let mut smtp = line.object("smtp");
    some(&mut smtp, "helo", own.helo.as_deref());
    some(&mut smtp, "mail_from", own.mail_from.as_deref());
    if !own.rcpt_to.is_empty() {
        smtp.list("rcpt_to", own.rcpt_to.iter().map(Vec::as_slice));
    }
    smtp.end();
    if !own.email.fields.is_empty() {
        email(line, &own.email);
    }
}

fn email(line: &mut Object<'_>, own: &Email) {
    let mut email = line.object("email");
    email.string("status", if own.is_complete { "PARSE_DONE" } else { "BODY_STARTED" });
    some(&mut email, "from", own.field("from"));
    for name in ["to", "cc"] {
        if let Some(value) = own.field(name) {
            email.list(name, value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii));
        }
    }
    some(&mut email, "subject", own.field("subject"));
    some(&mut email, "date", own.field("date"));
    some(&mut email, "message_id", own.field("message-id"));
    some(&mut email, "x_mailer", own.field("x-mailer"));
    for (name, all) in [("attachment", &own.attachments), ("url", &own.urls)] {
        if !all.is_empty() {
            email.list(name, all.iter().map(Vec::as_slice));
        }
    }
    email.end();
}

fn ftp(line: &mut Object<'_>, own: &Ftp) {
    let mut ftp = line.object("ftp");
    filled(&mut ftp, "command", &own.command);
    filled(&mut ftp, "command_data", &own.argument);
    if !own.replies.is_empty() {
        ftp.list("reply", own.replies.iter().map(|(_, text)| text.as_slice()));
        let out = ftp.value("completion_code");
        out.push(b'[');
        for (number, (code, _)) in own.replies.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            json::string(&code.to_string(), out);
        }
        out.push(b']');
    }
    if let Some(port) = own.data_port {
        ftp.number("dynamic_port", port);
    }
    ftp.string("reply_received", if own.replies.is_empty() { "no" } else { "yes" });
    ftp.end();
}

/// For [`super::stats`].
pub(super) fn time(object: &mut Object<'_>, name: &'static str, ns: u64) {
    timestamp(object, name, ns);
}

#[cfg(test)]
mod tests {
    use super::content_range;

    #[test]
    fn ranges_of_content() {
        type Read = (Option<(u64, u64)>, Option<u64>);
        let cases: [(&str, Read); 8] = [
            ("bytes 10-5/100", (Some((10, 5)), Some(100))),
            ("Bytes 0-3/*", (Some((0, 3)), None)),
            ("bytes */8", (None, Some(8))),
            ("bytes 0-9223372036854775807/9223372036854775808", (Some((0, i64::MAX as u64)), None)),
            ("bytes -1-2/3", (None, Some(3))),
            ("bytes 1-2", (None, None)),
            ("items 1-2/3", (None, None)),
            ("", (None, None)),
        ];
        for (raw, expected) in cases {
            assert_eq!(content_range(raw.as_bytes()), expected, "{raw}");
        }
    }
}
