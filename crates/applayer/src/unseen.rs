//! Events of Suricata (`app-layer-event`) that no parser here sees, and why.

/// Names of events, sorted, and why no rule of them is evaluated. A name with `*` at its end is that of several.
pub const UNSEEN: &[(&str, &str)] = &[
    ("applayer_proto_detection_skipped", "the protocol of each flow is looked for"),
    ("dns.flooded", "Suricata 7 does not have it either"),
    ("dns.state_memcap_reached", "Suricata 7 does not have it either"),
    ("dns.unsolicited_response", "Suricata 7 does not have it either"),
    ("file.*", "files of Flash are not unpacked"),
    ("http.double_encoded_uri", "URIs are decoded once, as by default in Suricata"),
    ("http.failed_protocol_change", "a change of the protocol does not fail here"),
    ("http.lzma_memlimit_reached", "LZMA is not unpacked"),
    ("http.too_many_warnings", "it counts messages of the parser of Suricata"),
    ("http.unknown_error", "it is an error of the parser of Suricata"),
    ("http2.extra_header_data", "what cannot be read is http2.invalid_header"),
    ("http2.failed_decompression", "it is http.gzip_decompression_failed"),
    ("http2.header_integer_overflow", "what cannot be read is http2.invalid_header"),
    ("http2.invalid_frame_header", "what cannot be read is http2.invalid_frame_data"),
    ("http2.invalid_http1_settings", "the settings of an upgrade are not read"),
    ("http2.long_frame_data", "frames of any length are read"),
    ("smtp.bdat_chunk_len_exceeded", "what follows a chunk is read as commands"),
    ("smtp.mime_malformed_msg", "mails are read as they are"),
    ("smtp.mime_parse_failed", "mails are read as they are"),
    ("tls.certificate_*", "a certificate that cannot be read is tls.invalid_certificate"),
    ("tls.dataleak_heartbeat_mismatch", "encrypted heartbeats are not looked at"),
    ("tls.error_message_encountered", "SSL 2 is not read"),
    ("tls.invalid_ssl_record", "SSL 2 is not read"),
    ("tls.invalid_sslv2_header", "SSL 2 is not read"),
    ("tls.invalid_tls_header", "what cannot be read is an event of the type, version or length"),
    (
        "tls.too_many_records_in_packet",
        "records are read from the stream, whatever its packets are",
    ),
];

/// Why rules of an event of Suricata, in any case, are not evaluated; `None` for a name that Suricata does not have either,
/// as far as is known.
pub fn unseen(event: &str) -> Option<&'static str> {
    let event = event.to_ascii_lowercase();
    let is_it = |name: &str| match name.strip_suffix('*') {
        Some(start) => event.starts_with(start),
        None => event == name,
    };
    UNSEEN.iter().find(|(name, _)| is_it(name)).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AnomalyKind;

    /// What Suricata's own rules name, of the protocols that are read here.
    const SURICATA: &[(&str, &str)] = &[
        (
            "",
            "applayer_mismatch_protocol_both_directions applayer_wrong_direction_first_data \
             applayer_detect_protocol_only_one_direction applayer_proto_detection_skipped applayer_no_tls_after_starttls \
             applayer_unexpected_protocol",
        ),
        (
            "http.",
            "unknown_error gzip_decompression_failed request_field_missing_colon response_field_missing_colon \
             invalid_request_chunk_len invalid_response_chunk_len invalid_transfer_encoding_value_in_request \
             invalid_transfer_encoding_value_in_response invalid_content_length_field_in_request \
             invalid_content_length_field_in_response 100_continue_already_seen unable_to_match_response_to_request \
             invalid_server_port_in_request invalid_authority_port request_header_invalid response_header_invalid \
             missing_host_header host_header_ambiguous invalid_request_field_folding invalid_response_field_folding \
             request_field_too_long response_field_too_long multipart_generic_error multipart_no_filedata \
             multipart_invalid_header request_server_port_tcp_port_mismatch request_uri_host_invalid \
             request_header_host_invalid uri_delim_non_compliant method_delim_non_compliant \
             request_line_leading_whitespace too_many_encoding_layers abnormal_ce_header request_auth_unrecognized \
             request_header_repetition response_header_repetition response_multipart_byteranges \
             response_abnormal_transfer_encoding response_chunked_old_proto response_invalid_protocol \
             response_invalid_status request_line_incomplete double_encoded_uri request_line_invalid \
             request_body_unexpected lzma_memlimit_reached duplicate_content_length_field_in_request \
             duplicate_content_length_field_in_response compression_bomb too_many_warnings range_invalid \
             file_name_too_long failed_protocol_change request_chunk_extension request_line_missing_protocol \
             request_too_many_headers response_too_many_headers response_chunk_extension",
        ),
        (
            "http2.",
            "invalid_frame_header invalid_client_magic invalid_frame_data invalid_header invalid_frame_length \
             extra_header_data long_frame_data stream_id_reuse invalid_http1_settings failed_decompression invalid_range \
             header_integer_overflow too_many_streams authority_host_mismatch userinfo_in_uri reassembly_limit_reached",
        ),
        ("dns.", "malformed_data not_request not_response z_flag_set invalid_opcode"),
        (
            "tls.",
            "invalid_sslv2_header invalid_tls_header invalid_record_version invalid_record_type \
             invalid_handshake_message invalid_certificate certificate_missing_element certificate_unknown_element \
             certificate_invalid_length certificate_invalid_string error_message_encountered invalid_ssl_record \
             heartbeat_message overflow_heartbeat_message invalid_heartbeat_message dataleak_heartbeat_mismatch \
             multiple_sni_extensions invalid_sni_type invalid_sni_length handshake_invalid_length \
             too_many_records_in_packet",
        ),
        ("ssh.", "invalid_banner long_banner invalid_record"),
        (
            "smtp.",
            "invalid_reply unable_to_match_reply_with_request max_command_line_len_exceeded max_reply_line_len_exceeded \
             invalid_pipelined_sequence bdat_chunk_len_exceeded no_server_welcome_message tls_rejected \
             data_command_rejected mime_parse_failed mime_malformed_msg mime_invalid_base64 mime_long_header_name \
             mime_long_header_value mime_invalid_qp mime_long_line mime_long_enc_line",
        ),
        ("ftp.", "request_command_too_long response_command_too_long"),
    ];

    /// Each event is one that is seen, or has its reason.
    #[test]
    fn all_of_suricata_are_seen_or_have_a_reason() {
        let mut seen = 0;
        for (protocol, names) in SURICATA {
            for name in names.split_whitespace() {
                let event = format!("{protocol}{name}");
                let is_seen = AnomalyKind::from_event(&event).is_some();
                let upper = AnomalyKind::from_event(&event.to_ascii_uppercase()).is_some();
                assert_eq!((upper, unseen(&event).is_some()), (is_seen, !is_seen), "{event}");
                seen += usize::from(is_seen);
            }
        }
        assert_eq!(seen, 103);
    }

    #[test]
    fn the_page_has_all_of_them() {
        let page = include_str!("../../../docs/ids.md");
        for (name, why) in UNSEEN {
            assert!(page.contains(&format!("\n| `{name}` | {why} |\n")), "{name}");
        }
    }

    #[test]
    fn names_that_are_none_have_no_reason() {
        assert!(UNSEEN.is_sorted());
        assert_eq!((unseen("http.other"), unseen("other")), (None, None));
    }
}
