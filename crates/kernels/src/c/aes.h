// AES (FIPS 197), bitsliced: no table, so no address and no branch depends on a key or a text.
//
// An item has two blocks at once, A and B. Word p of its eight words holds bit p of all their bytes:
//
//     bit of a word   31 … 24   23 … 16   15 … 8    7 … 0        a row of both states (FIPS 197 §3.4) each
//                      row 3     row 2     row 1   │ c3B c3A c2B c2A c1B c1A c0B c0A │  its columns
//
// so ShiftRows moves bits within bytes, MixColumns rotates words by bytes, and SubBytes is a circuit of ands and exclusive
// ors. The two blocks may have different keys of one size.
//
// A key is a record of AES_KEY_WORDS words, which the host makes (kernels::cipher): [0] rounds (10, 12 or 14; 0 if there is
// no key), [1] to [3] not used here, from [AES_ROUND_KEYS] on four words for each round key, two planes in one word.

#define AES_KEY_WORDS 64u
#define AES_ROUND_KEYS 4u

// A block as four words, whose lowest byte is the first.
typedef struct {
    uint a, b, c, d;
} aes_block_t;

// Two blocks.
typedef struct {
    aes_block_t a, b;
} aes_pair_t;

// Two blocks in planes.
typedef struct {
    uint p0, p1, p2, p3, p4, p5, p6, p7;
} aes_planes_t;

FN aes_block_t aes_block_of(uint a, uint b, uint c, uint d)
{
    aes_block_t block;
    block.a = a;
    block.b = b;
    block.c = c;
    block.d = d;
    return block;
}

FN aes_block_t aes_xor(aes_block_t x, aes_block_t y)
{
    return aes_block_of(x.a ^ y.a, x.b ^ y.b, x.c ^ y.c, x.d ^ y.d);
}

// ---- planes ----

#define AES_SWAP(x, y, low, by)                                                                    \
    do {                                                                                           \
        const uint x_ = (x), y_ = (y);                                                             \
        (x) = (x_ & (low)) | (y_ & (low)) << (by);                                                 \
        (y) = (x_ & ~(low)) >> (by) | (y_ & ~(low));                                               \
    } while (0)

// From words to planes and back: 8 by 8 bits of each byte are transposed.
FN aes_planes_t aes_transpose(aes_planes_t s)
{
    AES_SWAP(s.p0, s.p1, 0x55555555u, 1u);
    AES_SWAP(s.p2, s.p3, 0x55555555u, 1u);
    AES_SWAP(s.p4, s.p5, 0x55555555u, 1u);
    AES_SWAP(s.p6, s.p7, 0x55555555u, 1u);
    AES_SWAP(s.p0, s.p2, 0x33333333u, 2u);
    AES_SWAP(s.p1, s.p3, 0x33333333u, 2u);
    AES_SWAP(s.p4, s.p6, 0x33333333u, 2u);
    AES_SWAP(s.p5, s.p7, 0x33333333u, 2u);
    AES_SWAP(s.p0, s.p4, 0x0f0f0f0fu, 4u);
    AES_SWAP(s.p1, s.p5, 0x0f0f0f0fu, 4u);
    AES_SWAP(s.p2, s.p6, 0x0f0f0f0fu, 4u);
    AES_SWAP(s.p3, s.p7, 0x0f0f0f0fu, 4u);
    return s;
}

FN aes_planes_t aes_planes_of(aes_pair_t pair)
{
    aes_planes_t s;
    s.p0 = pair.a.a;
    s.p1 = pair.b.a;
    s.p2 = pair.a.b;
    s.p3 = pair.b.b;
    s.p4 = pair.a.c;
    s.p5 = pair.b.c;
    s.p6 = pair.a.d;
    s.p7 = pair.b.d;
    return aes_transpose(s);
}

FN aes_pair_t aes_pair_of(aes_planes_t planes)
{
    const aes_planes_t s = aes_transpose(planes);
    aes_pair_t pair;
    pair.a = aes_block_of(s.p0, s.p2, s.p4, s.p6);
    pair.b = aes_block_of(s.p1, s.p3, s.p5, s.p7);
    return pair;
}

// ---- steps of a round ----

// The circuit of Boyar and Peralta (SEA 2010): 32 ands, 77 exclusive ors, 4 inversions. x0 and s0 are the highest bits.
FN aes_planes_t aes_sub_bytes(aes_planes_t s)
{
    const uint x0 = s.p7, x1 = s.p6, x2 = s.p5, x3 = s.p4, x4 = s.p3, x5 = s.p2, x6 = s.p1, x7 = s.p0;
    const uint y14 = x3 ^ x5, y13 = x0 ^ x6, y9 = x0 ^ x3, y8 = x0 ^ x5, t0 = x1 ^ x2, y1 = t0 ^ x7, y4 = y1 ^ x3;
    const uint y12 = y13 ^ y14, y2 = y1 ^ x0, y5 = y1 ^ x6, y3 = y5 ^ y8, t1 = x4 ^ y12, y15 = t1 ^ x5;
    const uint y20 = t1 ^ x1, y6 = y15 ^ x7, y10 = y15 ^ t0, y11 = y20 ^ y9, y7 = x7 ^ y11, y17 = y10 ^ y11;
    const uint y19 = y10 ^ y8, y16 = t0 ^ y11, y21 = y13 ^ y16, y18 = x0 ^ y16, t2 = y12 & y15, t3 = y3 & y6;
    const uint t4 = t3 ^ t2, t5 = y4 & x7, t6 = t5 ^ t2, t7 = y13 & y16, t8 = y5 & y1, t9 = t8 ^ t7, t10 = y2 & y7;
    const uint t11 = t10 ^ t7, t12 = y9 & y11, t13 = y14 & y17, t14 = t13 ^ t12, t15 = y8 & y10, t16 = t15 ^ t12;
    const uint t17 = t4 ^ t14, t18 = t6 ^ t16, t19 = t9 ^ t14, t20 = t11 ^ t16, t21 = t17 ^ y20, t22 = t18 ^ y19;
    const uint t23 = t19 ^ y21, t24 = t20 ^ y18, t25 = t21 ^ t22, t26 = t21 & t23, t27 = t24 ^ t26, t28 = t25 & t27;
    const uint t29 = t28 ^ t22, t30 = t23 ^ t24, t31 = t22 ^ t26, t32 = t31 & t30, t33 = t32 ^ t24, t34 = t23 ^ t33;
    const uint t35 = t27 ^ t33, t36 = t24 & t35, t37 = t36 ^ t34, t38 = t27 ^ t36, t39 = t29 & t38, t40 = t25 ^ t39;
    const uint t41 = t40 ^ t37, t42 = t29 ^ t33, t43 = t29 ^ t40, t44 = t33 ^ t37, t45 = t42 ^ t41, z0 = t44 & y15;
    const uint z1 = t37 & y6, z2 = t33 & x7, z3 = t43 & y16, z4 = t40 & y1, z5 = t29 & y7, z6 = t42 & y11;
    const uint z7 = t45 & y17, z8 = t41 & y10, z9 = t44 & y12, z10 = t37 & y3, z11 = t33 & y4, z12 = t43 & y13;
    const uint z13 = t40 & y5, z14 = t29 & y2, z15 = t42 & y9, z16 = t45 & y14, z17 = t41 & y8, t46 = z15 ^ z16;
    const uint t47 = z10 ^ z11, t48 = z5 ^ z13, t49 = z9 ^ z10, t50 = z2 ^ z12, t51 = z2 ^ z5, t52 = z7 ^ z8;
    const uint t53 = z0 ^ z3, t54 = z6 ^ z7, t55 = z16 ^ z17, t56 = z12 ^ t48, t57 = t50 ^ t53, t58 = z4 ^ t46;
    const uint t59 = z3 ^ t54, t60 = t46 ^ t57, t61 = z14 ^ t57, t62 = t52 ^ t58, t63 = t49 ^ t58, t64 = z4 ^ t59;
    const uint t65 = t61 ^ t62, t66 = z1 ^ t63, s0 = t59 ^ t63, s6 = t56 ^ ~t62, s7 = t48 ^ ~t60, t67 = t64 ^ t65;
    const uint s3 = t53 ^ t66, s4 = t51 ^ t66, s5 = t47 ^ t65, s1 = t64 ^ ~s3, s2 = t55 ^ ~t67;
    s.p7 = s0;
    s.p6 = s1;
    s.p5 = s2;
    s.p4 = s3;
    s.p3 = s4;
    s.p2 = s5;
    s.p1 = s6;
    s.p0 = s7;
    return s;
}

// The affine step of SubBytes (FIPS 197 §5.1.1) undone.
FN aes_planes_t aes_affine_undone(aes_planes_t s)
{
    aes_planes_t r;
    r.p0 = ~(s.p2 ^ s.p5 ^ s.p7);
    r.p1 = s.p3 ^ s.p6 ^ s.p0;
    r.p2 = ~(s.p4 ^ s.p7 ^ s.p1);
    r.p3 = s.p5 ^ s.p0 ^ s.p2;
    r.p4 = s.p6 ^ s.p1 ^ s.p3;
    r.p5 = s.p7 ^ s.p2 ^ s.p4;
    r.p6 = s.p0 ^ s.p3 ^ s.p5;
    r.p7 = s.p1 ^ s.p4 ^ s.p6;
    return r;
}

// The inverse of SubBytes: SubBytes is an affine step behind an inversion, which undoes itself.
FN aes_planes_t aes_sub_bytes_undone(aes_planes_t s)
{
    return aes_affine_undone(aes_sub_bytes(aes_affine_undone(s)));
}

// Row r goes r columns to the left: r times two bits of its byte to the right.
FN uint aes_shift_row_bits(uint x)
{
    return (x & 0x000000ffu) | (x & 0x0000fc00u) >> 2 | (x & 0x00000300u) << 6 | (x & 0x00f00000u) >> 4
        | (x & 0x000f0000u) << 4 | (x & 0xc0000000u) >> 6 | (x & 0x3f000000u) << 2;
}

FN uint aes_shift_row_bits_undone(uint x)
{
    return (x & 0x000000ffu) | (x & 0x00003f00u) << 2 | (x & 0x0000c000u) >> 6 | (x & 0x00f00000u) >> 4
        | (x & 0x000f0000u) << 4 | (x & 0x03000000u) << 6 | (x & 0xfc000000u) >> 2;
}

#define AES_EACH_PLANE(s, f)                                                                       \
    do {                                                                                           \
        (s).p0 = f((s).p0);                                                                        \
        (s).p1 = f((s).p1);                                                                        \
        (s).p2 = f((s).p2);                                                                        \
        (s).p3 = f((s).p3);                                                                        \
        (s).p4 = f((s).p4);                                                                        \
        (s).p5 = f((s).p5);                                                                        \
        (s).p6 = f((s).p6);                                                                        \
        (s).p7 = f((s).p7);                                                                        \
    } while (0)

FN aes_planes_t aes_shift_rows(aes_planes_t s)
{
    AES_EACH_PLANE(s, aes_shift_row_bits);
    return s;
}

FN aes_planes_t aes_shift_rows_undone(aes_planes_t s)
{
    AES_EACH_PLANE(s, aes_shift_row_bits_undone);
    return s;
}

FN aes_planes_t aes_planes_xor(aes_planes_t x, aes_planes_t y)
{
    x.p0 ^= y.p0;
    x.p1 ^= y.p1;
    x.p2 ^= y.p2;
    x.p3 ^= y.p3;
    x.p4 ^= y.p4;
    x.p5 ^= y.p5;
    x.p6 ^= y.p6;
    x.p7 ^= y.p7;
    return x;
}

// Row r is row r + 1, or r + 2.
#define AES_ROW_1(x) rotate_left32((x), 24u)
#define AES_ROW_2(x) rotate_left32((x), 16u)

// Each byte times 2 (FIPS 197 §4.2.1).
FN aes_planes_t aes_doubled(aes_planes_t s)
{
    aes_planes_t r;
    r.p0 = s.p7;
    r.p1 = s.p0 ^ s.p7;
    r.p2 = s.p1;
    r.p3 = s.p2 ^ s.p7;
    r.p4 = s.p3 ^ s.p7;
    r.p5 = s.p4;
    r.p6 = s.p5;
    r.p7 = s.p6;
    return r;
}

// 2 s_r + 3 s_(r+1) + s_(r+2) + s_(r+3): with d_r = s_r + s_(r+1) it is 2 d_r + s_(r+1) + d_(r+2).
FN aes_planes_t aes_mix_columns(aes_planes_t s)
{
    aes_planes_t next = s;
    AES_EACH_PLANE(next, AES_ROW_1);
    aes_planes_t d = aes_planes_xor(s, next);
    const aes_planes_t doubled = aes_doubled(d);
    AES_EACH_PLANE(d, AES_ROW_2);
    return aes_planes_xor(aes_planes_xor(doubled, next), d);
}

// The same as MixColumns of s_r + 4 (s_r + s_(r+2)).
FN aes_planes_t aes_mix_columns_undone(aes_planes_t s)
{
    aes_planes_t other = s;
    AES_EACH_PLANE(other, AES_ROW_2);
    const aes_planes_t sum = aes_planes_xor(s, other);
    return aes_mix_columns(aes_planes_xor(s, aes_doubled(aes_doubled(sum))));
}

// Planes p and p + 4 of the round keys of A and B, from a word of each.
#define AES_ADD_KEY_WORD(low, high, a, b)                                                          \
    do {                                                                                           \
        const uint a_ = (a), b_ = (b);                                                             \
        (low) ^= (a_ & 0x55555555u) | (b_ & 0x55555555u) << 1;                                     \
        (high) ^= (a_ >> 1 & 0x55555555u) | (b_ & 0xaaaaaaaau);                                    \
    } while (0)

// ---- the cipher ----
//
// For keys in GLOBAL memory, and (…_own) for one that an item has made itself (aes_expand_own), which is that of both blocks.

#define AES_FUNCTIONS(encrypt, decrypt, add_key, SPACE)                                            \
    FN aes_planes_t add_key(aes_planes_t s, SPACE const uint *key_a, SPACE const uint *key_b, uint round) \
    {                                                                                              \
        SPACE const uint *a = key_a + AES_ROUND_KEYS + 4u * round;                                 \
        SPACE const uint *b = key_b + AES_ROUND_KEYS + 4u * round;                                 \
        AES_ADD_KEY_WORD(s.p0, s.p4, a[0], b[0]);                                                  \
        AES_ADD_KEY_WORD(s.p1, s.p5, a[1], b[1]);                                                  \
        AES_ADD_KEY_WORD(s.p2, s.p6, a[2], b[2]);                                                  \
        AES_ADD_KEY_WORD(s.p3, s.p7, a[3], b[3]);                                                  \
        return s;                                                                                  \
    }                                                                                              \
                                                                                                   \
    FN aes_pair_t encrypt(SPACE const uint *key_a, SPACE const uint *key_b, aes_pair_t pair)       \
    {                                                                                              \
        const uint rounds = key_a[0] < 14u ? key_a[0] : 14u;                                       \
        aes_planes_t s = add_key(aes_planes_of(pair), key_a, key_b, 0u);                           \
        for (uint round = 1u; round <= rounds; round++) {                                          \
            s = aes_shift_rows(aes_sub_bytes(s));                                                  \
            if (round != rounds)                                                                   \
                s = aes_mix_columns(s);                                                            \
            s = add_key(s, key_a, key_b, round);                                                   \
        }                                                                                          \
        return aes_pair_of(s);                                                                     \
    }                                                                                              \
                                                                                                   \
    FN aes_pair_t decrypt(SPACE const uint *key_a, SPACE const uint *key_b, aes_pair_t pair)       \
    {                                                                                              \
        const uint rounds = key_a[0] < 14u ? key_a[0] : 14u;                                       \
        aes_planes_t s = aes_planes_of(pair);                                                      \
        for (uint round = rounds; round >= 1u; round--) {                                          \
            s = add_key(s, key_a, key_b, round);                                                   \
            if (round != rounds)                                                                   \
                s = aes_mix_columns_undone(s);                                                     \
            s = aes_sub_bytes_undone(aes_shift_rows_undone(s));                                    \
        }                                                                                          \
        return aes_pair_of(add_key(s, key_a, key_b, 0u));                                          \
    }

// Both blocks, A with one key and B with another of as many rounds.
AES_FUNCTIONS(aes_encrypt, aes_decrypt, aes_add_key, GLOBAL)

AES_FUNCTIONS(aes_encrypt_own_pair, aes_decrypt_own_pair, aes_add_key_own, PRIVATE)

FN aes_pair_t aes_encrypt_own(PRIVATE const uint *key, aes_pair_t pair)
{
    return aes_encrypt_own_pair(key, key, pair);
}

FN aes_pair_t aes_decrypt_own(PRIVATE const uint *key, aes_pair_t pair)
{
    return aes_decrypt_own_pair(key, key, pair);
}

// One block: the other place is not used.
FN aes_block_t aes_encrypt_one(GLOBAL const uint *key, aes_block_t block)
{
    aes_pair_t pair;
    pair.a = block;
    pair.b = block;
    return aes_encrypt(key, key, pair).a;
}

// ---- key expansion on the device ----

// SubWord (FIPS 197 §5.2).
FN uint aes_sub_word(uint word)
{
    aes_pair_t pair;
    pair.a = aes_block_of(word, 0u, 0u, 0u);
    pair.b = pair.a;
    return aes_pair_of(aes_sub_bytes(aes_planes_of(pair))).a.a;
}

// Expands a key of AES-128, as four words whose lowest byte is the first, into a record of AES_KEY_WORDS words.
FN void aes_expand_own(PRIVATE uint *record, uint a, uint b, uint c, uint d)
{
    record[0] = 10u;
    uint rcon = 1u;
    for (uint round = 0u; round <= 10u; round++) {
        if (round != 0u) {
            a ^= aes_sub_word(rotate_left32(d, 24u)) ^ rcon;
            b ^= a;
            c ^= b;
            d ^= c;
            rcon = rcon << 1 ^ (rcon >> 7) * 0x11bu;
        }
        aes_pair_t pair;
        pair.a = aes_block_of(a, b, c, d);
        pair.b = aes_block_of(0u, 0u, 0u, 0u);
        const aes_planes_t s = aes_planes_of(pair);
        PRIVATE uint *key = record + AES_ROUND_KEYS + 4u * round;
        key[0] = s.p0 | s.p4 << 1;
        key[1] = s.p1 | s.p5 << 1;
        key[2] = s.p2 | s.p6 << 1;
        key[3] = s.p3 | s.p7 << 1;
    }
}

// Expands a key of 4, 6 or 8 words, whose lowest byte is the first, that lies where the round keys of its record begin.
FN void aes_expand(GLOBAL uint *record, uint key_words)
{
    const uint rounds = key_words + 6u;
    GLOBAL uint *keys = record + AES_ROUND_KEYS;
    uint word = keys[key_words - 1u], rcon = 1u, phase = 0u;
    for (uint i = key_words; i < 4u * (rounds + 1u); i++) {
        if (phase == 0u || (key_words == 8u && phase == 4u)) {
            word = aes_sub_word(phase == 0u ? rotate_left32(word, 24u) : word);
            if (phase == 0u) {
                word ^= rcon;
                rcon = rcon << 1 ^ (rcon >> 7) * 0x11bu;
            }
        }
        word ^= keys[i - key_words];
        keys[i] = word;
        phase = phase + 1u == key_words ? 0u : phase + 1u;
    }
    for (uint round = 0u; round <= rounds; round++) {
        GLOBAL uint *key = keys + 4u * round;
        aes_pair_t pair;
        pair.a = aes_block_of(key[0], key[1], key[2], key[3]);
        pair.b = aes_block_of(0u, 0u, 0u, 0u);
        const aes_planes_t s = aes_planes_of(pair);
        key[0] = s.p0 | s.p4 << 1;
        key[1] = s.p1 | s.p5 << 1;
        key[2] = s.p2 | s.p6 << 1;
        key[3] = s.p3 | s.p7 << 1;
    }
    record[0] = rounds;
}

// ---- blocks of a text ----

// The bytes of a block that a text of `len` bytes at `at` has from byte `from` on, zeros behind. Reads no byte of another
// block, which another item may write.
FN aes_block_t aes_load(GLOBAL const uchar *bytes, ulong at, uint len, uint from)
{
    aes_block_t block = aes_block_of(0u, 0u, 0u, 0u);
    const uint there = from < len ? len - from : 0u;
    const ulong first = at + from;
    if (there >= 16u && ((uint)first & 3u) == 0u) {
        GLOBAL const uint *words = (GLOBAL const uint *)(bytes + first);
        return aes_block_of(words[0], words[1], words[2], words[3]);
    }
    for (uint i = 0u; i < 16u && i < there; i++) {
        const uint byte = (uint)bytes[first + i] << 8u * (i & 3u);
        block.a |= i < 4u ? byte : 0u;
        block.b |= i >> 2 == 1u ? byte : 0u;
        block.c |= i >> 2 == 2u ? byte : 0u;
        block.d |= i >> 2 == 3u ? byte : 0u;
    }
    return block;
}

// Writes those bytes.
FN void aes_store(GLOBAL uchar *bytes, ulong at, uint len, uint from, aes_block_t block)
{
    const uint there = from < len ? len - from : 0u;
    const ulong first = at + from;
    if (there >= 16u && ((uint)first & 3u) == 0u) {
        GLOBAL uint *words = (GLOBAL uint *)(bytes + first);
        words[0] = block.a;
        words[1] = block.b;
        words[2] = block.c;
        words[3] = block.d;
        return;
    }
    for (uint i = 0u; i < 16u && i < there; i++) {
        const uint word = i < 8u ? (i < 4u ? block.a : block.b) : (i < 12u ? block.c : block.d);
        bytes[first + i] = (uchar)(word >> 8u * (i & 3u));
    }
}

// Byte `i` of 32, those of A first.
FN uint aes_byte(aes_pair_t pair, uint i)
{
    const aes_block_t block = i < 16u ? pair.a : pair.b;
    const uint low = (i & 4u) == 0u ? block.a : block.b, high = (i & 4u) == 0u ? block.c : block.d;
    return ((i & 8u) == 0u ? low : high) >> 8u * (i & 3u) & 0xffu;
}

// A block that is a big-endian number of 128 bits: `iv.x` its upper half, `iv.y` its lower one.
FN aes_block_t aes_block_be(ulong2_t iv)
{
    return aes_block_of(swap32((uint)(iv.x >> 32)), swap32((uint)iv.x), swap32((uint)(iv.y >> 32)),
                        swap32((uint)iv.y));
}

// Counter block `number` behind the first one: all 128 bits count (SP 800-38A, appendix B.1).
FN aes_block_t aes_counter(ulong2_t first, uint number)
{
    const ulong low = first.y + number;
    return aes_block_be(ulong2_of(first.x + (low < first.y ? 1UL : 0UL), low));
}

// The same where the last 32 bits count, as in GCM (SP 800-38D §6.2), and RFC 3686.
FN aes_block_t aes_counter32(ulong2_t first, uint number)
{
    return aes_block_be(ulong2_of(first.x, (first.y & 0xffffffff00000000UL) | (uint)((uint)first.y + number)));
}
