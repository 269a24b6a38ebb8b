// The first kernel: what modules did is nothing yet, and each packet is decoded once for all of them (GASPP 5.2).
//
// Behind the sources, so that no name of decode.h is in their way.

FN uint own_min16(uint value)
{
    return value < 0xffffu ? value : 0xffffu;
}

// What modules are told of a frame: see `reference` in decoded.rs.
FN void own_decode(GLOBAL uint *decoded, frame_t frame, uint has)
{
    decoded_t d = decode_frame(frame);
    if ((has & LAYER_FORGIVEN) != 0u)
        d = ignore_checksum(d);
    const uint is_ip = d.kind == KIND_IPV4 || d.kind == KIND_IPV6;
    const uint is_martian = d.anomaly == ANOMALY_MARTIAN_SOURCE || d.anomaly == ANOMALY_MARTIAN_DESTINATION;
    uint layers = LAYER_ETH | (has & (LAYER_STREAM | LAYER_REPLY)), l3 = 0u, l4 = 0u, data = 0u, end = 0u;
    if (is_ip && (d.anomaly == ANOMALY_NONE || is_martian)) {
        layers |= LAYER_IP | (d.kind == KIND_IPV6 ? LAYER_IPV6 : 0u);
        l3 = d.l3_offset;
        l4 = d.l4_offset;
        end = d.l3_offset + d.ip_total_len;
        if ((d.flags & (HAS_PORTS | FRAGMENT)) == HAS_PORTS && (d.protocol == 17u || d.protocol == 6u)) {
            layers |= d.protocol == 17u ? LAYER_UDP : LAYER_TCP;
            if (d.protocol == 17u)
                data = l4 + 8u;
            else if (l4 + 12u < frame.len)
                data = l4 + 4u * ((uint)frame.bytes[frame.at + l4 + 12u] >> 4);
            data = data < end ? data : end;
        }
    }
    decoded[0] = own_min16(l3) | own_min16(l4) << 16;
    decoded[1] = own_min16(data) | own_min16(end) << 16;
    decoded[2] = d.protocol | d.ttl << 8 | layers << 16;
}

KERNEL(module_begin)
{
    if (GLOBAL_ID < OWN_MODULES && job_rows(arena) != 0u)
        own_spent(SCRATCH(arena), GLOBAL_ID)[0] = 0u;
    if (GLOBAL_ID < job_rows(arena)) {
        const uint row = JOB_FIRST(arena) + GLOBAL_ID;
        COL_MODULE_SEEN(arena)[row] = 0u;
        COL_MODULE_ERROR(arena)[row] = 0u;
        COL_MODULE_BY(arena)[row] = 0u;
        COL_MODULE_IGNORED(arena)[row] = 0u;
        // Headers are looked at as far as they are in the frame's first cell, as the CPU does.
        const uint there = COL_MODULE_INFO(arena)[row] >> 16;
        frame_t frame;
        frame.bytes = payload;
        frame.at = COL_MODULE_AT(arena)[row];
        frame.whole = COL_MODULE_LEN(arena)[row];
        frame.len = there < frame.whole ? there : frame.whole;
        own_decode(own_decoded(SCRATCH(arena), arena, row), frame, COL_MODULE_LAYERS(arena)[row]);
    }
}

// Rows that do alike work side by side: those that no module sees, then the others by context, layer and length
// (GASPP 5.3).
FN ulong OWN(module_key)(GLOBAL uchar *arena, uint row)
{
    const uint layers = own_decoded(SCRATCH(arena), arena, row)[2] >> 16, len = COL_MODULE_LEN(arena)[row] / 64u;
    const uint layer = (layers & LAYER_TCP) != 0u ? 3u : (layers & LAYER_UDP) != 0u ? 2u : (layers & LAYER_IP) != 0u;
    const uint is_seen = IS_NEXT(COL_VERDICT(arena)[row]) && COL_MODULE_SEES(arena)[row] != 0u;
    const uint context = COL_CONTEXT(arena)[row] & OWN_CONTEXTS;
    return is_seen != 0u ? ((context << 2 | layer) << 5 | (len < 31u ? len : 31u)) << 1 | 1u : 0u;
}
