// Cut trees over the images of `classify::cuts`: what is where in them is said there. Leaves hold rules over headers of IPv4 of four
// words, or values and masks over any words.
//
// A row goes through all trees. A cut takes its bits one by one: a launch of many rows hides that behind the loads of
// the others. Whatever an image lacks is a leaf without rules.

#define CUTS_MAGIC 0x63757401u
#define CUTS_MAGIC_MASKS 0x63757402u
#define CUTS_TREES 16u
#define CUTS_TREES_MAX 5u
#define CUTS_LEVELS_MAX 2u
#define CUTS_NODE 8u
#define CUTS_LANES 8u
#define CUTS_LINE 16u
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

// The cell that a header, as two numbers, comes to in a tree whose words stand at `at`.
FN uint cuts_cell(const region_t image, ulong at, uint levels, ulong first, ulong second)
{
    for (uint level = 0u; level <= levels; level++) {
        if (!image_has(image, at, CUTS_NODE))
            return 0u;
        GLOBAL const uint *node = image.words + at;
        const uint low = cuts_extract(first, cuts_pair(node), 0u);
        const uint number = low | cuts_extract(second, cuts_pair(node + 2), LOAD(node + 4) & 31u);
        at = LOAD(node + 5) + (ulong)number * (level < levels ? CUTS_NODE : 1u);
    }
    return image_word(image, at);
}

// The best rule of the leaf that a header comes to in a tree.
FN ulong cuts_tree(const region_t image, uint tree, uint levels, PRIVATE const uint *head)
{
    const ulong addresses = (ulong)head[0] << 32 | head[1], others = (ulong)head[2] << 32 | head[3];
    const uint cell = cuts_cell(image, CUTS_TREES + CUTS_NODE * tree, levels, addresses, others);
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

// One of the `width` words of a header; zero where it has no such word. Chosen by comparing, so that headers stay in registers.
FN uint cuts_word(PRIVATE const uint *head, const uint width, uint word)
{
    uint value = 0u;
#pragma unroll
    for (uint i = 0u; i < width; i++)
        value = i == word ? head[i] : value;
    return value;
}

// The first rule of a block of masks over `columns` words that a header matches.
FN ulong cuts_masked(GLOBAL const uint *block, uint columns, const uint width, PRIVATE const uint *head)
{
    uint left = (1u << CUTS_LANES) - 1u; // rules that match so far, a bit each
#pragma unroll
    for (uint i = 0u; i < width; i++) {
        if (i < columns && left != 0u) {
            GLOBAL const uint *column = block + CUTS_LINE * (1u + i);
            for (uint lane = 0u; lane < CUTS_LANES; lane++) {
                const uint differs = (head[i] ^ LOAD(column + lane)) & LOAD(column + CUTS_LANES + lane);
                left &= ~((differs != 0u ? 1u : 0u) << lane);
            }
        }
    }
    for (uint lane = 0u; lane < CUTS_LANES; lane++)
        if ((left >> lane & 1u) != 0u)
            return match_of(LOAD(block + 2u * lane), LOAD(block + 2u * lane + 1u));
    return MATCH_NONE;
}

// The best rule of an image of masks for a header of `width` words.
FN ulong cuts_masks(const region_t image, const uint width, PRIVATE const uint *head)
{
    const uint trees = image_word(image, 2UL), levels = image_word(image, 3UL);
    const uint columns = image_word(image, 5UL), picked = image_word(image, 6UL);
    const uint block_words = CUTS_LINE * (1u + columns);
    ulong found = MATCH_NONE;
    if (image_word(image, 0UL) != CUTS_MAGIC_MASKS || trees > CUTS_TREES_MAX || levels > CUTS_LEVELS_MAX
        || columns > width || image_word(image, 4UL) != block_words)
        return found;
    uint words[4]; // those that are cut at
#pragma unroll
    for (uint i = 0u; i < 4u; i++)
        words[i] = cuts_word(head, width, picked >> (8u * i) & 0xffu);
    const ulong first = (ulong)words[0] << 32 | words[1], second = (ulong)words[2] << 32 | words[3];
    for (uint tree = 0u; tree < trees; tree++) {
        const uint cell = cuts_cell(image, CUTS_TREES + CUTS_NODE * tree, levels, first, second);
        const ulong leaf = (ulong)(cell >> 8) * CUTS_LINE;
        const uint blocks = cell & 0xffu;
        ulong own = MATCH_NONE;
        for (uint block = 0u; block < blocks && own == MATCH_NONE; block++) {
            if (!image_has(image, leaf + block * block_words, block_words))
                break;
            own = cuts_masked(image.words + leaf + block * block_words, columns, width, head);
        }
        found = match_best(found, own);
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
        found = match_best(found, cuts_tree(image, tree, levels, head));
    return found;
}
