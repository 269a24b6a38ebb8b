// Reduction trees over the images of `classify::rfc` and `classify::tic`: what is where in them is said there (Gupta,
// McKeown 1999; TIC 4 and 5). The 5-tuple of IPv4. An access that the image does not cover gives zero.
//
// A row's accesses of a phase do not wait for each other. TIC's interpreter is the CPU's: rows of neighbouring items
// that have another pair of addresses take another way through it, which a group pays for by its longest list.

#define RFC_MAGIC 0x72666301u
#define TIC_MAGIC 0x74696301u
#define TREE_TABLES 16u // words before the descriptions of the tables, four words each

#define TREE_SRC_HIGH 0u
#define TREE_SRC_LOW 1u
#define TREE_DST_HIGH 2u
#define TREE_DST_LOW 3u
#define TREE_SRC 4u
#define TREE_DST 5u
#define TREE_ADDRESSES 6u
#define TREE_STRIPS 3u // from a directory of strips to the strips
#define TREE_STRIP 32u // columns of a strip
#define RFC_SPORT 7u
#define RFC_DPORT 8u
#define RFC_PROTO 9u
#define RFC_PORTS 10u
#define RFC_TAILS 11u
#define RFC_RESULT 12u

// An entry of a table, of 1, 2 or 4 bytes.
FN uint tree_get(const region_t image, uint table, uint at)
{
    GLOBAL const uint *about = image.words + TREE_TABLES + 4u * table;
    const uint width = LOAD(about + 1) & 3u;
    const uint bits = 8u << (width < 2u ? width : 2u);
    const uint word = image_word(image, (ulong)LOAD(about) + (width < 2u ? at >> (2u - width) : at));
    return word >> (at * bits & 31u) & 0xffffffffu >> (32u - bits);
}

// An entry of a cross product.
FN uint tree_cross(const region_t image, uint table, uint row, uint column)
{
    return tree_get(image, table, row * LOAD(image.words + TREE_TABLES + 4u * table + 2u) + column);
}

// An entry of a cross product, which may be in strips.
FN uint tree_either(const region_t image, uint in_strips, uint table, uint row, uint column)
{
    if (!in_strips)
        return tree_cross(image, table, row, column);
    const uint strip = tree_cross(image, table, row, column / TREE_STRIP);
    return tree_cross(image, table + TREE_STRIPS, strip, column % TREE_STRIP);
}

// The class of a pair of addresses, seven accesses, or ten of cross products in strips.
FN uint tree_addresses(const region_t image, uint in_strips, uint src, uint dst)
{
    const uint from = tree_either(image, in_strips, TREE_SRC, tree_get(image, TREE_SRC_HIGH, src >> 16),
                                  tree_get(image, TREE_SRC_LOW, src & 0xffffu));
    const uint to = tree_either(image, in_strips, TREE_DST, tree_get(image, TREE_DST_HIGH, dst >> 16),
                                tree_get(image, TREE_DST_LOW, dst & 0xffffu));
    return tree_either(image, in_strips, TREE_ADDRESSES, from, to);
}

// The match of a rule by its number from 1; of 0, and beyond, none.
FN ulong tree_match(const region_t image, uint number)
{
    const uint rule = number - 1u;
    const ulong at = image_word(image, 2UL) + 2UL * rule;
    if (rule >= image_word(image, 3UL) || !image_has(image, at, 2UL))
        return MATCH_NONE;
    return match_of(LOAD(image.words + at), LOAD(image.words + at + 1u));
}

// Recursive flow classification: 13 accesses, and one for the match.
FN ulong rfc_lookup(const region_t image, PRIVATE const uint *head)
{
    if (image.len < TREE_TABLES + 4u * 13u || LOAD(image.words) != RFC_MAGIC)
        return MATCH_NONE;
    const uint addresses = tree_addresses(image, 0u, head[0], head[1]);
    const uint ports = tree_cross(image, RFC_PORTS, tree_get(image, RFC_SPORT, head[2] >> 16),
                                  tree_get(image, RFC_DPORT, head[2] & 0xffffu));
    const uint tail = tree_cross(image, RFC_TAILS, ports, tree_get(image, RFC_PROTO, head[3] >> 24));
    return tree_match(image, tree_cross(image, RFC_RESULT, addresses, tail));
}

#define TIC_LAST 0x80u
#define TIC_PROTO 0x40u
#define TIC_SPECIAL 7u
#define TIC_NOP 0u
#define TIC_BASE 1u
#define TIC_ANY_HIGH 1u // a port from 1024 on
#define TIC_ANY_LOW 2u  // a port below 1024
#define TIC_EXACT 3u    // one operand
#define TIC_RANGE 4u    // two operands

// Operands of a port by its class.
FN uint tic_operands(uint kind)
{
    return kind == TIC_EXACT ? 1u : (kind == TIC_RANGE ? 2u : 0u);
}

// Whether a port is what an instruction wants; takes its operands away.
FN uint tic_port(uint kind, PRIVATE ulong *operands, uint port)
{
    const uint count = tic_operands(kind);
    const uint first = (uint)*operands & 0xffffu, second = (uint)(*operands >> 16) & 0xffffu;
    const uint lowest = kind == TIC_ANY_HIGH ? 1024u : 0u;
    const uint highest = kind == 0u || kind == TIC_ANY_HIGH ? 0xffffu : (kind == TIC_ANY_LOW ? 1023u : 0u);
    const uint low = count ? first : lowest;
    const uint high = count == 2u ? second : (count ? first : highest);
    *operands >>= 16u * count;
    return port - low <= high - low;
}

// Two-stage classification: ten accesses, then the list of the pair of addresses, instruction by instruction. The
// pointer only goes up, and behind the code a list ends.
FN ulong tic_lookup(const region_t image, PRIVATE const uint *head)
{
    if (image.len < TREE_TABLES + 4u * 10u || LOAD(image.words) != TIC_MAGIC)
        return MATCH_NONE;
    const uint block_mask = image_word(image, 6UL) - 1u;
    const ulong first = image_word(image, 4UL);
    uint words = image_word(image, 5UL);
    words = block_mask < 1024u && image_has(image, first, words) ? words : 0u;
    GLOBAL const uint *code = image.words + (words ? first : 0UL);
    const uint sport = head[2] >> 16, dport = head[2] & 0xffffu, proto = head[3] >> 24;
    uint at = tree_addresses(image, 1u, head[0], head[1]) * image_word(image, 7UL);
    uint base = 0u, skip = 0u, number = 0u;
    uint going = 1u;
    while (going && at < words) {
        const uint word = LOAD(code + at);
        const uint operation = word >> 24;
        const uint of_sport = operation >> 3 & 7u, of_dport = operation & 7u;
        going = (operation & TIC_LAST) == 0u;
        if (of_sport == TIC_SPECIAL) {
            base = of_dport == TIC_BASE ? word << 16 : base;
            if (of_dport != TIC_NOP && of_dport != TIC_BASE)
                skip = ((word >> 16 ^ proto) & word >> 8 & 0xffu) != 0u;
            at = of_dport == TIC_NOP ? (at | block_mask) + 1u : at + 1u;
        } else {
            const ulong second = at + 1u < words ? LOAD(code + at + 1u) : 0u;
            const ulong third = at + 2u < words ? LOAD(code + at + 2u) : 0u;
            ulong operands = third << 32 | second;
            const uint has_sport = tic_port(of_sport, &operands, sport);
            const uint has_dport = tic_port(of_dport, &operands, dport);
            const uint has_proto = (operation & TIC_PROTO) == 0u || (word >> 16 & 0xffu) == proto;
            if (has_sport && has_dport && has_proto && !skip) {
                number = (base | (word & 0xffffu)) + 1u;
                going = 0u;
            }
            skip = 0u;
            at += 1u + (tic_operands(of_sport) + tic_operands(of_dport) + 1u) / 2u;
        }
    }
    return tree_match(image, number);
}
