// What modules in the kernel dialect use. Names that begin with `own_` are not theirs.
//
// A module reaches its packet by packet_byte, packet_set_byte and the like: a read beyond the packet gives 0, a write beyond it
// is not done, and counted as an error of the module.

// A function without a verdict does not compile.
#if defined(__clang__)
#pragma clang diagnostic error "-Wreturn-type"
#endif

#define PASS 0u
#define DROP 1u
#define IGNORE 2u
#define TO_HOST 3u
#define DUMP 4u

#define PROTOCOL_ICMP 1u
#define PROTOCOL_TCP 6u
#define PROTOCOL_UDP 17u
#define PROTOCOL_ICMPV6 58u

typedef struct {
    GLOBAL uchar *own_bytes;
    GLOBAL uint *own_flow;
    GLOBAL uint *own_table;
    uint own_mask;
    uint own_error;
    GLOBAL const uint *own_patterns; // the automaton of the module
    uint own_patterns_len;           // in words
    uint own_len;  // bytes of the frame, whatever a module makes of `len`
    uint own_is_fixed; // its bytes are a copy
    uint len;      // bytes of the frame
    uint l3;       // where the IP header is, from the frame's first byte
    uint l4;       // where the upper layer is
    uint data;     // where the payload of UDP or TCP is
    uint end;      // where the IP packet ends; padding of the link may follow
    uint protocol; // of the upper layer
    uint ttl;      // TTL or hop limit
    uint port;     // number of the port that it came in by
    uint is_ipv6;
    uint is_reply; // from the end of the flow that answers
    uint has_flow;
    uint is_joined; // a UDP datagram that came in fragments, which stay as they are
    ulong time_ns; // when it came, nanoseconds since 1970
    uint context; // GASPP's context key: a bit for each context; a module may set some
} packet_t;

// New bytes of a TCP connection, in order.
typedef struct {
    GLOBAL const uchar *own_bytes;
    uint own_len;  // how many bytes there are, whatever a module makes of `len`
    uint at;       // where they are in the packet, or NOT_IN_PACKET
    uint len;      // how many
    uint is_reply; // sent by the end of the flow that answers
    ulong offset;  // the place of the first one in what its sender sent
} piece_t;

// `at` of bytes that waited for those in front of them, or came in fragments. No packet is so long.
#define NOT_IN_PACKET 0x80000000u

// Rounds that the loops of a function of a layer and of those that it calls may go through: more than a packet has bytes.
#define OWN_LOOPS 131072u

// Set in a budget that was exceeded; the lower bits are what was left. Less is taken away than would clear its first bit.
#define OWN_EXCEEDED 0xc0000000u

// Whether a loop may go on with a round that counts as so many.
FN uint own_ticks(PRIVATE uint *left, uint rounds)
{
    // As wide as needed: a budget that was exceeded is large.
    if ((*left - rounds - 1u) >> 31 != 0u) {
        *left |= OWN_EXCEEDED;
        return 0u;
    }
    *left -= rounds;
    return 1u;
}

FN uint own_tick(PRIVATE uint *left)
{
    return own_ticks(left, 1u);
}

// Work of a function of the system counts as so many rounds.
FN void own_spend(PRIVATE uint *left, uint rounds)
{
    if (own_ticks(left, rounds) == 0u)
        *left = OWN_EXCEEDED;
}

// An index of an array with so many elements; of one that is none it is 0, and the budget ends.
FN uint own_at(ulong i, ulong count, PRIVATE uint *left)
{
    if (i < count)
        return (uint)i;
    *left |= OWN_EXCEEDED;
    return 0u;
}

// What a module may do in one launch, in units of 1024 rounds for each group that a device runs at once. A launch cannot be stopped,
// so the packets behind are not looked at, and count as failed. Packets of less than a unit are not counted.
#define OWN_LAUNCH_UNITS 32768u

// Whether a module may look at one more packet or piece in this launch.
FN uint own_may_go_on(GLOBAL uint *spent, uint groups)
{
    const ulong limit = (ulong)OWN_LAUNCH_UNITS * groups;
    return (ulong)*(volatile GLOBAL uint *)spent < limit;
}

// Counts what was done with this budget left, and whether that was an error.
FN uint own_account(GLOBAL uint *spent, uint left)
{
    const uint units = (OWN_LOOPS - (left & ~OWN_EXCEEDED)) >> 10;
    if (units != 0u)
        ATOMIC_ADD(spent, units);
    return left >= OWN_EXCEEDED;
}

// The elements of an array. How many a pointer points at is not known, but there is one.
#define OWN_COUNT(array) ((ulong)&(array) == (ulong)&(array)[0] ? sizeof(array) / sizeof((array)[0]) : 1ul)

// Does not compile with a larger array: each packet that is worked on has one.
#if defined(__CUDACC__)
#define OWN_AT_MOST_4096_BYTES(array) static_assert(sizeof(array) <= 4096, "an array of more than 4,096 bytes")
#else
#define OWN_AT_MOST_4096_BYTES(array) _Static_assert(sizeof(array) <= 4096, "an array of more than 4,096 bytes")
#endif

FN uint packet_byte(PRIVATE const packet_t *packet, uint i)
{
    return i < packet->own_len ? (uint)packet->own_bytes[i] : 0u;
}

// The byte `n` behind offset `i`, which is not before the packet, however large `i` is.
FN uint own_byte_behind(PRIVATE const packet_t *packet, uint i, uint n)
{
    return i + n < i ? 0u : packet_byte(packet, i + n);
}

FN uint packet_be16(PRIVATE const packet_t *packet, uint i)
{
    return packet_byte(packet, i) << 8 | own_byte_behind(packet, i, 1u);
}

FN uint packet_be32(PRIVATE const packet_t *packet, uint i)
{
    return packet_be16(packet, i) << 16 | own_byte_behind(packet, i, 2u) << 8 | own_byte_behind(packet, i, 3u);
}

FN uint packet_src_port(PRIVATE const packet_t *packet)
{
    return packet_be16(packet, packet->l4);
}

FN uint packet_dst_port(PRIVATE const packet_t *packet)
{
    return packet_be16(packet, packet->l4 + 2u);
}

// Addresses of IPv4.
FN uint packet_src4(PRIVATE const packet_t *packet)
{
    return packet_be32(packet, packet->l3 + 12u);
}

FN uint packet_dst4(PRIVATE const packet_t *packet)
{
    return packet_be32(packet, packet->l3 + 16u);
}

// Byte `i` of a piece.
FN uint piece_byte(PRIVATE const packet_t *packet, PRIVATE const piece_t *piece, uint i)
{
    (void)packet;
    return i < piece->len && i < piece->own_len ? (uint)piece->own_bytes[i] : 0u;
}

// What UDP or TCP carries in a packet, as a piece: of the packet alone, in whatever order it came.
FN piece_t packet_payload(PRIVATE const packet_t *packet)
{
    piece_t piece;
    const uint end = packet->end < packet->own_len ? packet->end : packet->own_len;
    piece.at = packet->data;
    piece.len = packet->data != 0u && packet->data < end ? end - packet->data : 0u;
    piece.own_len = piece.len;
    piece.is_reply = packet->is_reply;
    piece.offset = 0ul;
    piece.own_bytes = packet->own_bytes + packet->data;
    return piece;
}

// Whether it was done. Checksums stay as they are.
FN uint packet_set_byte(PRIVATE packet_t *packet, uint i, uint value)
{
    if (i >= packet->own_len || packet->own_is_fixed != 0u) {
        packet->own_error = 1u;
        return 0u;
    }
    packet->own_bytes[i] = (uchar)value;
    return 1u;
}

// A checksum behind a change of one of its words (RFC 1624, equation 3).
FN uint checksum_update(uint sum, uint before, uint after)
{
    uint own = (~sum & 0xffffu) + (~before & 0xffffu) + (after & 0xffffu);
    own = (own & 0xffffu) + (own >> 16);
    own = (own & 0xffffu) + (own >> 16);
    return ~own & 0xffffu;
}

// The checksum at `at` behind a change of a byte that is `parity` bytes from the start of what it covers.
FN void own_update(PRIVATE packet_t *packet, uint at, uint parity, uint before, uint after)
{
    const uint shift = (parity & 1u) != 0u ? 0u : 8u;
    uint sum = packet_be16(packet, at);
    // UDP without a checksum has none afterwards either; one that comes out as 0 is sent as its other form (RFC 768).
    const uint is_udp = at == packet->l4 + 6u && packet->protocol == PROTOCOL_UDP;
    if (is_udp != 0u && sum == 0u)
        return;
    sum = checksum_update(sum, before << shift, after << shift);
    if (is_udp != 0u && sum == 0u)
        sum = 0xffffu;
    packet_set_byte(packet, at, sum >> 8);
    packet_set_byte(packet, at + 1u, sum & 255u);
}

// Sets byte `i`, with the checksums of IPv4, TCP and UDP that cover it. Whether it was done.
FN uint packet_change_byte(PRIVATE packet_t *packet, uint i, uint value)
{
    const uint before = packet_byte(packet, i), after = value & 255u;
    if (packet_set_byte(packet, i, after) == 0u)
        return 0u;
    const uint sum = packet->protocol == PROTOCOL_TCP ? 16u : packet->protocol == PROTOCOL_UDP ? 6u : 0u;
    const uint has_sum = sum != 0u && packet->data != 0u;
    const uint first = packet->is_ipv6 != 0u ? 8u : 12u, last = packet->is_ipv6 != 0u ? 40u : 20u;
    if (packet->l3 == 0u || i < packet->l3 || i >= packet->end)
        return 1u;
    if (i < packet->l4 && packet->is_ipv6 == 0u && i - packet->l3 != 10u && i - packet->l3 != 11u)
        own_update(packet, packet->l3 + 10u, i - packet->l3, before, after);
    // Addresses are in the sum of the upper layer, too.
    const uint is_address = i - packet->l3 >= first && i - packet->l3 < last;
    const uint is_sum = i == packet->l4 + sum || i == packet->l4 + sum + 1u;
    if (has_sum != 0u && is_sum == 0u && (i >= packet->l4 || is_address != 0u))
        own_update(packet, packet->l4 + sum, i >= packet->l4 ? i - packet->l4 : i - packet->l3, before, after);
    return 1u;
}

// ---- the hash table of a module (table.h) ----

// The value of a key; `otherwise` where it is not there.
FN uint table_find(PRIVATE packet_t *packet, uint key, uint otherwise)
{
    return own_table_find(packet->own_table, packet->own_mask, key, otherwise);
}

// Adds to the value of a key, which begins with 0; the value before. Without room it is an error, and the answer 0.
FN uint table_add(PRIVATE packet_t *packet, uint key, uint value)
{
    return own_table_add(packet->own_table, packet->own_mask, key, value, &packet->own_error);
}

// Sets the value of a key to `value` if it is `expected`; a new key has 0. The value before.
FN uint table_cas(PRIVATE packet_t *packet, uint key, uint expected, uint value)
{
    return own_table_cas(packet->own_table, packet->own_mask, key, expected, value, &packet->own_error);
}

// Gives a key a value other than 0 if it has none; whether it did.
FN uint table_insert(PRIVATE packet_t *packet, uint key, uint value)
{
    return own_table_insert(packet->own_table, packet->own_mask, key, value, &packet->own_error);
}

// ---- around the modules ----

#define LAYER_ETH 1u
#define LAYER_IP 2u
#define LAYER_UDP 4u
#define LAYER_TCP 8u
#define LAYER_STREAM 16u
#define LAYER_IPV6 32u
#define LAYER_REPLY 64u
#define LAYER_MOVED 128u
#define LAYER_FORGIVEN 256u // wrong checksums are ignored
#define LAYER_JOINED 512u   // it completes a UDP datagram, which is attached
#define NO_SLOT 0xffffffffu
#define IGNORES 0x80000000u // in the first word of a module's state; the others are the generation

// What `module_begin` decodes: for each row three words of scratch memory, before what modules keep for packets without
// a flow. Offsets as in packet_t: l3 and l4; data and end; protocol, ttl, and layers from bit 16 on.
FN GLOBAL uint *own_decoded(GLOBAL uchar *scratch, GLOBAL const uchar *arena, uint row)
{
    return (GLOBAL uint *)scratch + OWN_MODULES + OWN_ROW_WORDS * (row - JOB_FIRST(arena));
}

// What a module has done in this job: see own_account. Before what is decoded.
FN GLOBAL uint *own_spent(GLOBAL uchar *scratch, uint number)
{
    return (GLOBAL uint *)scratch + number;
}

// Whether a module sees a row.
FN uint own_sees(GLOBAL uchar *arena, uint row, uint bit, uint contexts)
{
    return IS_NEXT(COL_VERDICT(arena)[row]) && (COL_MODULE_SEES(arena)[row] & bit) != 0u &&
           COL_MODULE_IGNORED(arena)[row] == 0u && (contexts == 0u || (COL_CONTEXT(arena)[row] & contexts) != 0u);
}

// Where the headers of a packet are; its layers.
FN uint own_headers(PRIVATE packet_t *packet, GLOBAL const uint *decoded)
{
    const uint head = decoded[0], tail = decoded[1], info = decoded[2], layers = decoded[2] >> 16;
    packet->l3 = head & 0xffffu;
    packet->l4 = head >> 16;
    packet->data = tail & 0xffffu;
    packet->end = tail >> 16;
    packet->protocol = info & 255u;
    packet->ttl = info >> 8 & 255u;
    packet->is_ipv6 = (layers & LAYER_IPV6) != 0u;
    return layers;
}

// What is attached to a packet, behind its frame.
FN GLOBAL uchar *own_attached(PRIVATE const packet_t *packet)
{
    return packet->own_bytes + ((packet->own_len + 15u) & ~15u);
}

// The UDP datagram that a fragment completes, in its place (pieces.rs).
FN void own_join(PRIVATE packet_t *packet)
{
    GLOBAL uchar *attached = own_attached(packet);
    GLOBAL const uint *words = (GLOBAL const uint *)attached;
    own_headers(packet, words);
    packet->own_len = words[3];
    packet->len = packet->own_len;
    packet->own_bytes = attached + 16u;
    packet->own_is_fixed = packet->is_joined = 1u;
}

// Loads a packet; its layers.
FN uint own_load(PRIVATE packet_t *packet, GLOBAL uchar *arena, GLOBAL uchar *payload,
                 GLOBAL const uint *decoded, uint row)
{
    const uint layers = own_headers(packet, decoded);
    packet->own_bytes = payload + COL_MODULE_AT(arena)[row];
    packet->own_error = 0u;
    packet->own_len = COL_MODULE_LEN(arena)[row];
    packet->own_is_fixed = packet->is_joined = 0u;
    packet->len = packet->own_len;
    packet->port = COL_MODULE_INFO(arena)[row] & 0xffffu;
    packet->is_reply = (layers & LAYER_REPLY) != 0u;
    packet->has_flow = COL_MODULE_SLOT(arena)[row] != NO_SLOT;
    packet->context = COL_CONTEXT(arena)[row];
#if OWN_USES_TIME
    packet->time_ns = COL_MODULE_TIME(arena)[row];
#else
    packet->time_ns = 0ul;
#endif
    return layers;
}

// How many pieces a row has.
FN uint own_pieces(GLOBAL uchar *arena, uint row)
{
    const uint listed = COL_MODULE_PIECES(arena)[row];
    return (COL_MODULE_LAYERS(arena)[row] & LAYER_STREAM) == 0u ? 0u : listed == 0u ? 1u : listed;
}

// Piece `i` of a row, in their order: that which is in the packet, or one of the list that is attached to it (pieces.rs).
FN void own_piece(PRIVATE piece_t *piece, PRIVATE const packet_t *packet, GLOBAL uchar *arena, uint row, uint i)
{
    const uint listed = COL_MODULE_PIECES(arena)[row];
    if (listed == 0u) {
        const uint place = COL_MODULE_PIECE(arena)[row];
        piece->at = place & 0xffffu;
        piece->len = place >> 16;
        piece->len = piece->at + piece->len > packet->own_len ? 0u : piece->len;
        piece->own_len = piece->len;
        piece->is_reply = packet->is_reply;
        piece->offset = COL_MODULE_OFFSET(arena)[row];
        piece->own_bytes = packet->own_bytes + piece->at;
        return;
    }
    GLOBAL const uchar *attached = own_attached(packet);
    GLOBAL const uint *entry = (GLOBAL const uint *)attached + 4u * i;
    piece->own_bytes = i == 0u ? attached + 16u * listed : piece->own_bytes + piece->len;
    piece->at = (COL_MODULE_LAYERS(arena)[row] & LAYER_MOVED) != 0u ? NOT_IN_PACKET : entry[0];
    piece->len = entry[1] & 0x7fffffffu;
    piece->own_len = piece->len;
    piece->is_reply = entry[1] >> 31;
    piece->offset = (ulong)entry[2] | (ulong)entry[3] << 32;
}

#define BY_STREAM 256u // in COL_MODULE_BY: the function of streams decided

// What a module made of a packet. `by`: BY_STREAM, or 0.
FN void own_store(PRIVATE const packet_t *packet, GLOBAL uchar *arena, uint row, uint number, uint act, uint by)
{
    const uint bit = 1u << number;
    COL_MODULE_SEEN(arena)[row] |= bit;
    if (packet->own_error != 0u)
        COL_MODULE_ERROR(arena)[row] |= bit;
    COL_CONTEXT(arena)[row] |= packet->context;
    if (act == IGNORE)
        COL_MODULE_IGNORED(arena)[row] |= bit;
    uint verdict = VERDICT_NEXT;
    if (act == DROP)
        verdict = DROP_MODULE_DROP;
    else if (act == TO_HOST)
        verdict = VERDICT_HOST | packet->port;
    else if (act == DUMP)
        verdict = VERDICT_DUMP;
    if (verdict != VERDICT_NEXT) {
        COL_VERDICT(arena)[row] = verdict;
        COL_MODULE_BY(arena)[row] = number + 1u + by;
    }
}

// A module that is used no more has not processed a packet that it would have seen. `verdict`: what becomes of that.
FN void own_fail(GLOBAL uchar *arena, uint row, uint bit, uint contexts, uint verdict)
{
    if (!own_sees(arena, row, bit, contexts))
        return;
    COL_MODULE_ERROR(arena)[row] |= bit;
    if (verdict != VERDICT_NEXT)
        COL_VERDICT(arena)[row] = verdict;
}

// The state of a module for a new flow.
FN void own_renew(GLOBAL uint *words, uint generation, uint count)
{
    if ((words[0] & ~IGNORES) != generation) {
        words[0] = generation;
        for (uint i = 1u; i < count; i++)
            words[i] = 0u;
    }
}
