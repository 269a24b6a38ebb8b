// Cut trees over the images of `classify::cuts`: what is where in them is said there. Headers of IPv4 of four words.
//
// A row goes through all trees. A cut takes its bits one by one: a launch of many rows hides that behind the loads of
// the others. Whatever an image lacks is a leaf without rules.

#define CUTS_MAGIC 0x63757401u
#define CUTS_TREES 16u
#define CUTS_TREES_MAX 5u
#define CUTS_LEVELS_MAX 2u
#define CUTS_NODE 8u
#define CUTS_LANES 8u
#define CUTS_NARROW 64u // words of a block
#define CUTS_WIDE 80u
#define CUTS_DST 8u
#define CUTS_PORTS 16u
#define CUTS_LENGTHS 24u
#define CUTS_MISC 32u
#define CUTS_VALUE 40u
#define CUTS_MASK 48u

// The bits of `value` under `mask`, from bit `at` of the result on.
FN uint cuts_extract(ulong value, ulong mask, uint at)
{
    uint out = 0u;
    for (; mask != 0UL; mask &= mask - 1UL, at++)
        out |= (value & mask & (0UL - mask)) != 0UL ? 1u << (at & 31u) : 0u;
    return out;
}

FN ulong cuts_pair(GLOBAL const uint *words)
{
    return (ulong)LOAD(words + 1) << 32 | LOAD(words);
}

// The bits of `x` that a prefix of 32 - `shift` bits leaves.
FN uint cuts_prefix(uint x, uint shift)
{
    return shift < 32u ? x >> shift : 0u;
}

// Whether both ports are in their ranges.
FN uint cuts_ports(uint ports, uint from, uint lengths)
{
    const uint sport = ((ports >> 16) - (from >> 16)) & 0xffffu, dport = (ports - from) & 0xffffu;
    return sport <= lengths >> 16 && dport <= (lengths & 0xffffu);
}

// Whether the last word of a header is what a rule wants.
FN uint cuts_last(uint last, uint misc, GLOBAL const uint *rule, uint block_words)
{
    if (block_words == CUTS_WIDE)
        return ((last ^ LOAD(rule + CUTS_VALUE)) & LOAD(rule + CUTS_MASK)) == 0u;
    return ((last ^ misc) >> 24 & misc >> 16 & 0xffu) == 0u;
}

// The first rule of a block that a header matches.
FN ulong cuts_block(GLOBAL const uint *block, uint block_words, PRIVATE const uint *head)
{
    for (uint lane = 0u; lane < CUTS_LANES; lane++) {
        GLOBAL const uint *rule = block + lane;
        const uint misc = LOAD(rule + CUTS_MISC);
        if (cuts_prefix(head[0] ^ LOAD(rule), misc & 0xffu) == 0u
            && cuts_prefix(head[1] ^ LOAD(rule + CUTS_DST), misc >> 8 & 0xffu) == 0u
            && cuts_ports(head[2], LOAD(rule + CUTS_PORTS), LOAD(rule + CUTS_LENGTHS))
            && cuts_last(head[3], misc, rule, block_words)) {
            GLOBAL const uint *found = block + block_words - 2u * (CUTS_LANES - lane);
            return match_of(LOAD(found), LOAD(found + 1));
        }
    }
    return MATCH_NONE;
}

// The best rule of the leaf that a header comes to in a tree, whose words stand at `at`.
FN ulong cuts_tree(const region_t image, ulong at, uint levels, PRIVATE const uint *head)
{
    const ulong addresses = (ulong)head[0] << 32 | head[1], others = (ulong)head[2] << 32 | head[3];
    for (uint level = 0u; level <= levels; level++) {
        if (!image_has(image, at, CUTS_NODE))
            return MATCH_NONE;
        GLOBAL const uint *node = image.words + at;
        const uint low = cuts_extract(addresses, cuts_pair(node), 0u);
        const uint number = low | cuts_extract(others, cuts_pair(node + 2), LOAD(node + 4) & 31u);
        at = LOAD(node + 5) + (ulong)number * (level < levels ? CUTS_NODE : 1u);
    }
    const uint cell = image_word(image, at);
    const uint block_words = image_word(image, 4UL) == CUTS_WIDE ? CUTS_WIDE : CUTS_NARROW;
    const ulong first = (ulong)(cell >> 8) * 16UL;
    const uint blocks = cell & 0xffu;
    ulong found = MATCH_NONE;
    for (uint block = 0u; block < blocks && found == MATCH_NONE; block++) {
        if (!image_has(image, first + block * block_words, block_words))
            break;
        found = cuts_block(image.words + first + block * block_words, block_words, head);
    }
    return found;
}

FN ulong cuts_lookup(const region_t image, PRIVATE const uint *head)
{
    const uint trees = image_word(image, 2UL), levels = image_word(image, 3UL);
    ulong found = MATCH_NONE;
    if (image_word(image, 0UL) != CUTS_MAGIC || trees > CUTS_TREES_MAX || levels > CUTS_LEVELS_MAX)
        return found;
    for (uint tree = 0u; tree < trees; tree++)
        found = match_best(found, cuts_tree(image, CUTS_TREES + CUTS_NODE * tree, levels, head));
    return found;
}
