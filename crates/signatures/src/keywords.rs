//! The options by their names.
//!
//! Each reads its value and tells the [`Builder`]. `content` has the content modifiers and sticky buffers as well, `bytes` what
//! extracts numbers, `packet` conditions on headers and flows, `meta` what is said about a rule.

mod arg;
mod bytes;
mod content;
mod meta;
mod packet;
mod requires;

use std::sync::LazyLock;

pub(crate) use arg::{Arg, Part};
pub(crate) use meta::{Rate, threshold, track};
pub(crate) use packet::{FRAG_BITS, IP_OPTIONS, TCP_FLAGS, TLS_VERSIONS};

use crate::Buffer;
use crate::parse::Builder;
use crate::problem::Fault;

/// Options that the language has and nothing here evaluates.
const UNSUPPORTED: &[&str] = &[
    "activated_by",
    "activates",
    "appid",
    "asn1",
    "cip_service",
    "config",
    "count",
    "cvs",
    "dce_iface",
    "dce_opnum",
    "dcerpc.iface",
    "dcerpc.opnum",
    "dhcp.leasetime",
    "dhcp.rebinding_time",
    "dhcp.renewal_time",
    "dnp3.data",
    "dnp3_data",
    "dnp3_func",
    "dnp3_ind",
    "dnp3_obj",
    "email.body_md5",
    "enip.capabilities",
    "enip.cip_attribute",
    "enip.cip_class",
    "enip.cip_extendedstatus",
    "enip.cip_instance",
    "enip.cip_status",
    "enip.device_type",
    "enip.identity_status",
    "enip.product_code",
    "enip.protocol_version",
    "enip.revision",
    "enip.serial",
    "enip.service_name",
    "enip.state",
    "enip.status",
    "enip.vendor_id",
    "enip_command",
    "entropy",
    "file_type",
    "filemd5",
    "filesha1",
    "filesha256",
    "flow.age",
    "flow.bytes",
    "flow.bytes_toclient",
    "flow.bytes_toserver",
    "flow.elephant",
    "flow.pkts",
    "flow.pkts_toclient",
    "flow.pkts_toserver",
    "frame",
    "ftp.dynamic_port",
    "ftp.mode",
    "ftp.reply_received",
    "ftpbounce",
    "ftpdata_command",
    "geoip",
    "gtp_info",
    "gtp_type",
    "gtp_version",
    "hash",
    "http2.errorcode",
    "http2.frametype",
    "http2.header_name",
    "http2.priority",
    "http2.settings",
    "http2.size_update",
    "http2.window",
    "http_encode",
    "icmpv6.mtu",
    "igmp.hdr",
    "igmp.type",
    "ike.chosen_sa_attribute",
    "ike.exchtype",
    "ike.key_exchange_payload",
    "ike.key_exchange_payload_length",
    "ike.nonce_payload",
    "ike.nonce_payload_length",
    "ike.spi_initiator",
    "ike.spi_responder",
    "ip_form",
    "krb5.ticket_encryption",
    "krb5.weak_encryption",
    "krb5_err_code",
    "krb5_msg_type",
    "ldap.request.attribute_type",
    "ldap.request.dn",
    "ldap.request.operation",
    "ldap.responses.attribute_type",
    "ldap.responses.count",
    "ldap.responses.dn",
    "ldap.responses.message",
    "ldap.responses.operation",
    "ldap.responses.result_code",
    "length",
    "logto",
    "lua",
    "luajit",
    "luaxform",
    "modbus",
    "modbus_data",
    "modbus_func",
    "modbus_unit",
    "mqtt.connack.session_present",
    "mqtt.connect.flags",
    "mqtt.connect.protocol_string",
    "mqtt.flags",
    "mqtt.protocol_version",
    "mqtt.qos",
    "mqtt.reason_code",
    "mqtt.type",
    "nfq_set_mark",
    "nfs.version",
    "nfs_procedure",
    "nfs_version",
    "protected_content",
    "react",
    "replace",
    "resp",
    "rfb.secresult",
    "rfb.sectype",
    "rpc",
    "sd_pattern",
    "sdp.attribute",
    "sdp.bandwidth",
    "sdp.connection_data",
    "sdp.email",
    "sdp.encryption_key",
    "sdp.media.connection_data",
    "sdp.media.encryption_key",
    "sdp.media.media",
    "sdp.media.media_info",
    "sdp.origin",
    "sdp.phone_number",
    "sdp.repeat_time",
    "sdp.session_info",
    "sdp.session_name",
    "sdp.time",
    "sdp.timezone",
    "sdp.uri",
    "session",
    "sip_body",
    "sip_header",
    "sip_method",
    "sip_stat_code",
    "smb.version",
    "smtp.body_md5",
    "snmp.pdu_type",
    "snmp.usm",
    "snmp.version",
    "soid",
    "stream_reassemble",
    "tcp.wscale",
    "tls.cert_chain",
    "tls.store",
    "tls_store",
    "vlan.id",
    "vlan.layers",
    "websocket.flags",
    "websocket.mask",
    "websocket.opcode",
];

/// Options with functions of their own.
const OWN: &[&str] = &[
    "absent",
    "ack",
    "app-layer-event",
    "app-layer-protocol",
    "base64_decode",
    "bsize",
    "bypass",
    "byte_extract",
    "byte_jump",
    "byte_math",
    "byte_test",
    "classtype",
    "compress_whitespace",
    "content",
    "datarep",
    "dataset",
    "decode-event",
    "depth",
    "detection_filter",
    "distance",
    "dns.opcode",
    "dns.rcode",
    "dns.rrtype",
    "domain",
    "dotprefix",
    "dsize",
    "endswith",
    "engine-event",
    "fast_pattern",
    "fileext",
    "filemagic",
    "filename",
    "filesize",
    "filestore",
    "flags",
    "flow",
    "flowbits",
    "flowint",
    "fragbits",
    "fragoffset",
    "from_base64",
    "gid",
    "header_lowercase",
    "hostbits",
    "icmp_id",
    "icmp_seq",
    "icode",
    "id",
    "ip_proto",
    "ipopts",
    "iprep",
    "isdataat",
    "itype",
    "metadata",
    "msg",
    "noalert",
    "nocase",
    "offset",
    "pcre",
    "pcrexform",
    "prefilter",
    "priority",
    "rawbytes",
    "reference",
    "requires",
    "rev",
    "sameip",
    "seq",
    "sid",
    "ssh.protoversion",
    "ssh.softwareversion",
    "ssl_state",
    "ssl_version",
    "startswith",
    "stream-event",
    "stream_size",
    "strip_pseudo_headers",
    "strip_whitespace",
    "tag",
    "target",
    "tcp.ack",
    "tcp.flags",
    "tcp.mss",
    "tcp.seq",
    "tcp.window",
    "threshold",
    "tld",
    "tls.cert_chain_len",
    "tls.fingerprint",
    "tls.issuerdn",
    "tls.subject",
    "tls.version",
    "tls_cert_expired",
    "tls_cert_valid",
    "to_lowercase",
    "to_md5",
    "to_sha1",
    "to_sha256",
    "to_uppercase",
    "tos",
    "ttl",
    "uricontent",
    "urilen",
    "url_decode",
    "window",
    "within",
    "xbits",
    "xor",
];

/// All words that begin an option, for "did you mean".
static WORDS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| OWN.iter().chain(UNSUPPORTED).copied().chain(Buffer::names()).collect());

/// All names of options, and whether an engine here evaluates them. Some values of an option may be refused nevertheless.
pub fn keywords() -> impl Iterator<Item = (&'static str, bool)> {
    let of = |name: &'static str| {
        let buffer = Buffer::from_sticky(name).or_else(|| Buffer::from_modifier(name));
        (name, !UNSUPPORTED.contains(&name) && buffer.is_none_or(Buffer::is_supported))
    };
    WORDS.iter().copied().map(of)
}

/// Reads an option.
pub(crate) fn apply(builder: &mut Builder, name: &str, arg: &Arg<'_>) -> Result<(), Fault> {
    if content::apply(builder, name, arg)?
        || bytes::apply(builder, name, arg)?
        || packet::apply(builder, name, arg)?
        || meta::apply(builder, name, arg)?
        || requires::apply(builder, name, arg)?
    {
        return Ok(());
    }
    if let Some(keyword) = UNSUPPORTED.iter().find(|known| **known == name) {
        let value = arg.raw.map(|raw| String::from_utf8_lossy(raw).into_owned());
        builder.rule.unsupported.push(crate::Unsupported { keyword, value });
        return Ok(());
    }
    if let Some((_, hint)) = SNORT3.iter().find(|(known, _)| *known == name) {
        return Err(Fault::new(builder.at, format!("it is an option of Snort 3; {hint}")));
    }
    Err(Fault::unknown(builder.at, "unknown option", &WORDS, name))
}

/// Options of Snort 3 alone, and what stands for them.
const SNORT3: &[(&str, &str)] = &[
    ("bufferlen", "here it is `bsize`"),
    ("file_type", "the types of files are not known"),
    ("http_param", "write a `pcre` of `http.uri`"),
    ("rem", "write it in the `msg`, or behind `#` before the rule"),
    ("service", "write it in place of the protocol"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_unique_and_sorted() {
        for list in [OWN, UNSUPPORTED] {
            let mut sorted = list.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), list.len());
        }
        assert!(UNSUPPORTED.iter().all(|name| !OWN.contains(name)));
        assert!(Buffer::names().all(|name| !OWN.contains(&name) && !UNSUPPORTED.contains(&name)));
    }

    /// Each word of the list leads to a function, and says something about a value that is wrong for all of them.
    #[test]
    fn every_word_is_known() {
        for word in WORDS.iter() {
            let text = format!("alert tcp any any -> any any ({word}:,,\\;; sid:1;)");
            if let Err(problem) = crate::Rule::parse(text.as_bytes()) {
                assert_ne!(problem.reason, "unknown option", "{word}");
            }
        }
    }
}
