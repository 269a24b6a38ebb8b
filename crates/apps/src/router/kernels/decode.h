// One pass over a frame (GASPP 5.2): the twin of `packet::decode`, check by check. Headers are read as
// aligned words and shifted, never as unaligned types.

#define KIND_IPV4 0u
#define KIND_IPV6 1u
#define KIND_ARP 2u
#define KIND_OTHER 3u

#define MAC_UNICAST 0u
#define MAC_MULTICAST 1u
#define MAC_BROADCAST 2u

#define HAS_PORTS (1u << 0)
#define FRAGMENT (1u << 1)
#define MORE_FRAGMENTS (1u << 2)
#define DONT_FRAGMENT (1u << 3)
#define HAS_OPTIONS (1u << 4)
#define HOP_BY_HOP (1u << 5)
#define L4_TRUNCATED (1u << 6)
#define SRC_MAC_GROUP (1u << 7)
#define DST_MULTICAST (1u << 8)
#define DST_BROADCAST (1u << 9)
#define ROUTING_HEADER (1u << 10)
#define FRAGMENT_HEADER (1u << 11)

// Numbers of `packet::Anomaly`.
#define ANOMALY_NONE 0u
#define ANOMALY_TRUNCATED 1u
#define ANOMALY_VLAN_TRUNCATED 2u
#define ANOMALY_TOO_MANY_VLAN_TAGS 3u
#define ANOMALY_NON_IP 4u
#define ANOMALY_BAD_ARP 5u
#define ANOMALY_BAD_VERSION 6u
#define ANOMALY_BAD_HEADER_LENGTH 7u
#define ANOMALY_BAD_TOTAL_LENGTH 8u
#define ANOMALY_BAD_CHECKSUM 9u
#define ANOMALY_MARTIAN_SOURCE 10u
#define ANOMALY_MARTIAN_DESTINATION 11u
#define ANOMALY_ZERO_LENGTH_FRAGMENT 12u
#define ANOMALY_OVERLONG_FRAGMENT 13u
#define ANOMALY_BAD_EXTENSION_HEADER 14u
#define ANOMALY_EXTENSION_HEADER_LOOP 15u
#define ANOMALY_TOO_MANY_EXTENSION_HEADERS 16u

#define EXTENSION_HEADERS_MAX 8u

typedef struct {
    ulong2_t src, dst;
    uint ip_total_len, l4_word, ethertype, vlan_tci0, vlan_tci1, l3_offset, l4_offset, ip_header_len,
        fragment_offset, flags, kind, protocol, ttl, traffic_class, vlan_count, dst_mac, anomaly,
        extension_count;
} decoded_t;

// A frame: where it starts in the payload, bytes of it that are there, bytes of the whole.
typedef struct {
    GLOBAL const uchar *bytes;
    ulong at;
    uint len;
    uint whole;
} frame_t;

FN uint frame_be32(frame_t frame, uint at)
{
    return load_be32(frame.bytes, frame.at + at);
}

FN uint leaves_lengths_right(uint anomaly)
{
    return anomaly == ANOMALY_NONE || anomaly == ANOMALY_BAD_CHECKSUM
        || anomaly == ANOMALY_MARTIAN_SOURCE || anomaly == ANOMALY_MARTIAN_DESTINATION;
}

FN uint fold16(uint sum)
{
    sum = (sum >> 16) + (sum & 0xffffu);
    return (sum >> 16) + (sum & 0xffffu);
}

// Length of the upper layer's fixed header; the top bit where it starts with two ports.
FN uint l4_shape(uint protocol)
{
    switch (protocol) {
    case 1u:
        return 8u;
    case 6u:
        return 20u | 0x80u;
    case 17u:
    case 136u:
        return 8u | 0x80u;
    case 33u:
    case 132u:
        return 12u | 0x80u;
    case 50u:
        return 8u;
    case 58u:
        return 4u;
    default:
        return 0u;
    }
}

FN decoded_t decode_l4(decoded_t d, frame_t frame)
{
    const uint len = d.ip_total_len - d.ip_header_len;
    const uint shape = l4_shape(d.protocol);
    d.flags |= len < (shape & 0x7fu) ? L4_TRUNCATED : 0u;
    const uint at = d.l3_offset + d.ip_header_len;
    if (len >= 4u && at + 4u <= frame.len) {
        d.l4_word = frame_be32(frame, at);
        d.flags |= shape & 0x80u ? HAS_PORTS : 0u;
    }
    return d;
}

FN uint judge_fragment(decoded_t d)
{
    const uint payload_len = d.ip_total_len - d.ip_header_len;
    if (!(d.flags & FRAGMENT))
        return ANOMALY_NONE;
    if (payload_len == 0u)
        return ANOMALY_ZERO_LENGTH_FRAGMENT;
    return d.fragment_offset + payload_len > 65535u ? ANOMALY_OVERLONG_FRAGMENT : ANOMALY_NONE;
}

// What may be wrong with an IPv4 header beside lengths and checksum (RFC 1812 5.3.7).
FN uint judge_content(decoded_t d)
{
    const uint src = (uint)d.src.y, dst = (uint)d.dst.y;
    const uint src_top = src >> 24, dst_top = dst >> 24;
    if (src == 0u ? !(dst >> 28 == 0xeu || dst == 0xffffffffu)
                  : src_top == 0u || src_top == 127u || src_top >= 224u)
        return ANOMALY_MARTIAN_SOURCE;
    if (dst_top == 0u || dst_top == 127u || (dst_top >= 240u && dst != 0xffffffffu))
        return ANOMALY_MARTIAN_DESTINATION;
    return judge_fragment(d);
}

// The record of a packet whose wrong checksum is ignored: the twin of `packet::decode::ignore_checksum`.
FN decoded_t ignore_checksum(decoded_t d)
{
    if (d.anomaly != ANOMALY_BAD_CHECKSUM)
        return d;
    d.anomaly = judge_content(d);
    if (!leaves_lengths_right(d.anomaly)) {
        d.flags &= ~(L4_TRUNCATED | HAS_PORTS);
        d.l4_word = 0u;
    }
    return d;
}

// RFC 1812 5.2.2, in the order of the twin.
FN uint judge_ipv4(decoded_t d, frame_t frame, uint version)
{
    const uint l3_len = frame.len - d.l3_offset;
    const uint room = (frame.whole > frame.len ? frame.whole : frame.len) - d.l3_offset;
    if (version != 4u)
        return ANOMALY_BAD_VERSION;
    if (d.ip_header_len < 20u)
        return ANOMALY_BAD_HEADER_LENGTH;
    if (d.ip_header_len > l3_len)
        return ANOMALY_TRUNCATED;
    if (d.ip_total_len < d.ip_header_len)
        return ANOMALY_BAD_TOTAL_LENGTH;
    if (d.ip_total_len > room)
        return ANOMALY_TRUNCATED;
    uint sum = 0u;
    for (uint at = 0u; at < d.ip_header_len; at += 4u) {
        const uint word = frame_be32(frame, d.l3_offset + at);
        sum += (word >> 16) + (word & 0xffffu);
    }
    if (fold16(sum) != 0xffffu)
        return ANOMALY_BAD_CHECKSUM;
    return judge_content(d);
}

FN decoded_t decode_ipv4(decoded_t d, frame_t frame)
{
    const uint at = d.l3_offset;
    d.kind = KIND_IPV4;
    if (frame.len < at + 20u) {
        d.anomaly = ANOMALY_TRUNCATED;
        return d;
    }
    const uint word0 = frame_be32(frame, at), word1 = frame_be32(frame, at + 4u);
    const uint word2 = frame_be32(frame, at + 8u);
    const uint src = frame_be32(frame, at + 12u), dst = frame_be32(frame, at + 16u);
    const uint fragment = word1 & 0xffffu;
    d.traffic_class = word0 >> 16 & 0xffu;
    d.ip_total_len = word0 & 0xffffu;
    d.ip_header_len = (word0 >> 24 & 0xfu) * 4u;
    d.ttl = word2 >> 24;
    d.protocol = word2 >> 16 & 0xffu;
    d.src.y = src;
    d.dst.y = dst;
    d.l4_offset = at + d.ip_header_len;
    d.fragment_offset = (fragment & 0x1fffu) * 8u;
    d.flags |= (fragment & 0x2000u ? MORE_FRAGMENTS : 0u) | (fragment & 0x4000u ? DONT_FRAGMENT : 0u)
        | (fragment & 0x3fffu ? FRAGMENT : 0u) | (d.ip_header_len > 20u ? HAS_OPTIONS : 0u)
        | (dst >> 28 == 0xeu ? DST_MULTICAST : 0u) | (dst == 0xffffffffu ? DST_BROADCAST : 0u);
    d.anomaly = judge_ipv4(d, frame, word0 >> 28);
    return leaves_lengths_right(d.anomaly) && d.fragment_offset == 0u ? decode_l4(d, frame) : d;
}

FN uint is_extension_header(uint protocol)
{
    return protocol == 0u || protocol == 43u || protocol == 44u || protocol == 51u || protocol == 60u;
}

// Walks at most EXTENSION_HEADERS_MAX headers; stops behind the header of a later fragment. An anomaly
// that breaks the chain stays in the record.
FN decoded_t walk_extensions(decoded_t d, frame_t frame)
{
    uint seen = 0u; // four bits for each kind
    while (is_extension_header(d.protocol) && d.anomaly == ANOMALY_NONE) {
        const uint at = d.l3_offset + d.ip_header_len;
        const uint protocol = d.protocol;
        uint slot = 4u, limit = 2u; // RFC 8200 4.1
        if (protocol == 0u) {
            slot = 0u;
            limit = d.extension_count == 0u ? 1u : 0u;
        } else if (protocol != 60u) {
            slot = protocol == 43u ? 1u : (protocol == 44u ? 2u : 3u);
            limit = 1u;
        }
        seen += 1u << 4u * slot;
        if (d.extension_count == EXTENSION_HEADERS_MAX)
            d.anomaly = ANOMALY_TOO_MANY_EXTENSION_HEADERS;
        else if ((seen >> 4u * slot & 0xfu) > limit)
            d.anomaly = ANOMALY_EXTENSION_HEADER_LOOP;
        else if (d.ip_header_len + 8u > d.ip_total_len)
            d.anomaly = ANOMALY_BAD_EXTENSION_HEADER;
        else if (at + 8u > frame.len)
            d.anomaly = ANOMALY_TOO_MANY_EXTENSION_HEADERS; // it is there, but not in this cell
        else {
            const uint word = frame_be32(frame, at);
            const uint units = word >> 16 & 0xffu;
            const uint length = protocol == 44u ? 8u : (protocol == 51u ? (units + 2u) * 4u : (units + 1u) * 8u);
            if (d.ip_header_len + length > d.ip_total_len || length < (protocol == 51u ? 12u : 8u)) {
                d.anomaly = ANOMALY_BAD_EXTENSION_HEADER;
            } else {
                if (protocol == 0u)
                    d.flags |= HOP_BY_HOP;
                if (protocol == 43u)
                    d.flags |= ROUTING_HEADER;
                if (protocol == 44u) {
                    const uint fragment = word & 0xffffu;
                    d.fragment_offset = fragment & 0xfff8u;
                    d.flags |= FRAGMENT_HEADER | (fragment & 1u ? MORE_FRAGMENTS : 0u)
                        | (fragment & 0xfff9u ? FRAGMENT : 0u);
                }
                d.extension_count += 1u;
                d.protocol = word >> 24;
                d.ip_header_len += length;
                d.l4_offset += length;
                if (d.fragment_offset != 0u)
                    break;
            }
        }
    }
    return d;
}

FN decoded_t decode_ipv6(decoded_t d, frame_t frame)
{
    const uint at = d.l3_offset;
    d.kind = KIND_IPV6;
    if (frame.len < at + 40u) {
        d.anomaly = ANOMALY_TRUNCATED;
        return d;
    }
    const uint room = (frame.whole > frame.len ? frame.whole : frame.len) - at;
    const uint word0 = frame_be32(frame, at), word1 = frame_be32(frame, at + 4u);
    d.traffic_class = word0 >> 20 & 0xffu;
    d.ip_total_len = (word1 >> 16) + 40u;
    d.protocol = word1 >> 8 & 0xffu;
    d.ttl = word1 & 0xffu;
    d.src = ulong2_of(load_be64(frame.bytes, frame.at + at + 8u), load_be64(frame.bytes, frame.at + at + 16u));
    d.dst = ulong2_of(load_be64(frame.bytes, frame.at + at + 24u), load_be64(frame.bytes, frame.at + at + 32u));
    d.ip_header_len = 40u;
    d.l4_offset = at + 40u;
    d.flags |= DONT_FRAGMENT | (d.dst.x >> 56 == 0xffUL ? DST_MULTICAST : 0u);
    if (word0 >> 28 != 6u) {
        d.anomaly = ANOMALY_BAD_VERSION;
    } else if (d.ip_total_len > room) {
        d.anomaly = ANOMALY_TRUNCATED;
    } else {
        d = walk_extensions(d, frame);
        const uint unspecified = d.src.x == 0UL && d.src.y == 0UL;
        const ulong dst_top = d.dst.x >> 56;
        if (d.anomaly == ANOMALY_NONE) {
            if (d.src.x >> 56 == 0xffUL || (d.src.x == 0UL && d.src.y == 1UL)
                || (unspecified && dst_top != 0xffUL))
                d.anomaly = ANOMALY_MARTIAN_SOURCE;
            else if ((d.dst.x == 0UL && d.dst.y <= 1UL)
                     || (dst_top == 0xffUL && (d.dst.x >> 48 & 0xfUL) <= 1UL))
                d.anomaly = ANOMALY_MARTIAN_DESTINATION;
            else
                d.anomaly = judge_fragment(d);
        }
    }
    return leaves_lengths_right(d.anomaly) && d.fragment_offset == 0u ? decode_l4(d, frame) : d;
}

FN decoded_t decode_arp(decoded_t d, frame_t frame)
{
    const uint at = d.l3_offset, len = frame.len - at;
    d.kind = KIND_ARP;
    if (len < 8u)
        d.anomaly = ANOMALY_TRUNCATED;
    else if (frame_be32(frame, at) != 0x00010800u || frame_be32(frame, at + 4u) >> 16 != 0x0604u)
        d.anomaly = ANOMALY_BAD_ARP;
    else if (len < 28u)
        d.anomaly = ANOMALY_TRUNCATED;
    return d;
}

FN uint is_vlan(uint ethertype)
{
    return ethertype == 0x8100u || ethertype == 0x88a8u || ethertype == 0x9100u;
}

FN decoded_t decode_frame(frame_t frame)
{
    decoded_t d;
    d.src = ulong2_of(0UL, 0UL);
    d.dst = ulong2_of(0UL, 0UL);
    d.ip_total_len = d.l4_word = d.ethertype = d.vlan_tci0 = d.vlan_tci1 = 0u;
    d.l3_offset = d.l4_offset = d.ip_header_len = d.fragment_offset = d.flags = 0u;
    d.kind = KIND_OTHER;
    d.protocol = d.ttl = d.traffic_class = d.vlan_count = d.extension_count = 0u;
    d.dst_mac = MAC_UNICAST;
    d.anomaly = ANOMALY_NONE;
    if (frame.len < 14u) {
        d.anomaly = ANOMALY_TRUNCATED;
        return d;
    }
    const uint word0 = frame_be32(frame, 0u), word1 = frame_be32(frame, 4u);
    if (word0 & 0x01000000u)
        d.dst_mac = word0 == 0xffffffffu && word1 >> 16 == 0xffffu ? MAC_BROADCAST : MAC_MULTICAST;
    d.flags = word1 & 0x0100u ? SRC_MAC_GROUP : 0u;
    d.ethertype = frame_be32(frame, 10u) & 0xffffu;
    d.l3_offset = 14u;
    while (is_vlan(d.ethertype)) {
        if (d.vlan_count == 2u) {
            d.anomaly = ANOMALY_TOO_MANY_VLAN_TAGS;
            return d;
        }
        if (frame.len < d.l3_offset + 4u) {
            d.anomaly = ANOMALY_VLAN_TRUNCATED;
            return d;
        }
        const uint tag = frame_be32(frame, d.l3_offset);
        d.vlan_tci0 = d.vlan_count == 0u ? tag >> 16 : d.vlan_tci0;
        d.vlan_tci1 = d.vlan_count == 0u ? 0u : tag >> 16;
        d.vlan_count += 1u;
        d.ethertype = tag & 0xffffu;
        d.l3_offset += 4u;
    }
    switch (d.ethertype) {
    case 0x0800u:
        return decode_ipv4(d, frame);
    case 0x86ddu:
        return decode_ipv6(d, frame);
    case 0x0806u:
        return decode_arp(d, frame);
    default:
        d.anomaly = ANOMALY_NON_IP;
        return d;
    }
}
