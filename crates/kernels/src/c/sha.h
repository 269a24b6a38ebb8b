// SHA-1 and SHA-256 (FIPS 180-4), and HMAC (RFC 2104), a row an item.
//
// A record of SHA_KEY_WORDS words says where the hash begins: words 0 to 7 the state after the blocks that come before the
// text, 8 to 15 the state with which HMAC's outer hash goes on, [16] how many bytes came before the text (a whole number of
// blocks), [17] whether there is an outer hash, behind its one block. So keys are hashed once, by the host
// (kernels::cipher), and a plain hash is the same without a key.

#define SHA_KEY_WORDS 32u
#define SHA_BEFORE 16u
#define SHA_OUTER 17u

CONSTANT uint SHA256_K[64] = {
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
    0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
    0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
    0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
    0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
    0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
    0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u,
};

// A state; SHA-1 uses the first five words.
typedef struct {
    uint a, b, c, d, e, f, g, h;
} sha_t;

FN sha_t sha_state(GLOBAL const uint *words)
{
    sha_t s;
    s.a = words[0];
    s.b = words[1];
    s.c = words[2];
    s.d = words[3];
    s.e = words[4];
    s.f = words[5];
    s.g = words[6];
    s.h = words[7];
    return s;
}

// A digest is the state.
FN uint sha_word(sha_t s, uint i)
{
    const uint low = i < 2u ? (i == 0u ? s.a : s.b) : (i == 2u ? s.c : s.d);
    const uint high = i < 6u ? (i == 4u ? s.e : s.f) : (i == 6u ? s.g : s.h);
    return i < 4u ? low : high;
}

// Word `i` of the block that begins at byte `block` of a text with its padding (FIPS 180-4 §5.1.1), behind `before` bytes.
FN uint sha_text_word(GLOBAL const uchar *bytes, uint at, uint len, uint before, uint blocks, uint i)
{
    const uint from = 4u * i;
    if (i + 1u == 16u * blocks)
        return (before + len) << 3;
    if (i + 2u == 16u * blocks)
        return (before + len) >> 29;
    const uint word = payload_be32(bytes, at, len, from);
    return from <= len && len - from < 4u ? word | 0x80000000u >> 8u * (len - from) : word;
}

FN uint sha_blocks(uint len) // with padding
{
    return (len + 8u) / 64u + 1u;
}

FN sha_t sha1_block(sha_t s, PRIVATE uint *w)
{
    uint a = s.a, b = s.b, c = s.c, d = s.d, e = s.e;
#pragma unroll
    for (uint t = 0u; t < 80u; t++) {
        if (t >= 16u)
            w[t & 15u] = rotate_left32(w[(t + 13u) & 15u] ^ w[(t + 8u) & 15u] ^ w[(t + 2u) & 15u] ^ w[t & 15u], 1u);
        uint f = b ^ c ^ d, k = t < 40u ? 0x6ed9eba1u : 0xca62c1d6u;
        if (t < 20u) {
            f = d ^ (b & (c ^ d));
            k = 0x5a827999u;
        } else if (t >= 40u && t < 60u) {
            f = (b & c) | (d & (b | c));
            k = 0x8f1bbcdcu;
        }
        const uint next = rotate_left32(a, 5u) + f + e + k + w[t & 15u];
        e = d;
        d = c;
        c = rotate_left32(b, 30u);
        b = a;
        a = next;
    }
    s.a += a;
    s.b += b;
    s.c += c;
    s.d += d;
    s.e += e;
    return s;
}

FN sha_t sha256_block(sha_t s, PRIVATE uint *w)
{
    sha_t r = s;
    for (uint t = 0u; t < 64u; t += 16u) {
#pragma unroll
        for (uint i = 0u; i < 16u; i++) {
            if (t != 0u) {
                const uint x = w[(i + 1u) & 15u], y = w[(i + 14u) & 15u];
                w[i] += (rotate_left32(x, 25u) ^ rotate_left32(x, 14u) ^ x >> 3) + w[(i + 9u) & 15u]
                    + (rotate_left32(y, 15u) ^ rotate_left32(y, 13u) ^ y >> 10);
            }
            const uint sum1 = rotate_left32(r.e, 26u) ^ rotate_left32(r.e, 21u) ^ rotate_left32(r.e, 7u);
            const uint sum0 = rotate_left32(r.a, 30u) ^ rotate_left32(r.a, 19u) ^ rotate_left32(r.a, 10u);
            const uint t1 = r.h + sum1 + (r.g ^ (r.e & (r.f ^ r.g))) + SHA256_K[t + i] + w[i];
            const uint t2 = sum0 + ((r.a & r.b) | (r.c & (r.a | r.b)));
            r.h = r.g;
            r.g = r.f;
            r.f = r.e;
            r.e = r.d + t1;
            r.d = r.c;
            r.c = r.b;
            r.b = r.a;
            r.a = t1 + t2;
        }
    }
    s.a += r.a;
    s.b += r.b;
    s.c += r.c;
    s.d += r.d;
    s.e += r.e;
    s.f += r.f;
    s.g += r.g;
    s.h += r.h;
    return s;
}

// The hash or HMAC of `len` bytes, with a record. The outer hash is one block more: a digest of so many words, padded.
#define SHA_FUNCTION(name, block_of, digest_words)                                                 \
    FN sha_t name(GLOBAL const uint *key, GLOBAL const uchar *bytes, uint at, uint len)            \
    {                                                                                              \
        const uint blocks = sha_blocks(len), before = key[SHA_BEFORE], outer = key[SHA_OUTER] != 0u; \
        sha_t s = sha_state(key);                                                                  \
        uint w[16];                                                                                \
        for (uint block = 0u; block < blocks + outer; block++) {                                   \
            if (block < blocks) {                                                                  \
                SHA_UNROLL                                                                         \
                for (uint i = 0u; i < 16u; i++)                                                    \
                    w[i] = sha_text_word(bytes, at, len, before, blocks, 16u * block + i);         \
            } else {                                                                               \
                SHA_UNROLL                                                                         \
                for (uint i = 0u; i < 16u; i++)                                                    \
                    w[i] = i < (digest_words) ? sha_word(s, i) : 0u;                               \
                w[digest_words] = 0x80000000u;                                                     \
                w[15] = 8u * (64u + 4u * (digest_words));                                          \
                s = sha_state(key + 8);                                                            \
            }                                                                                      \
            s = block_of(s, w);                                                                    \
        }                                                                                          \
        return s;                                                                                  \
    }

#define SHA_UNROLL _Pragma("unroll")

SHA_FUNCTION(sha1_bytes, sha1_block, 5u)
SHA_FUNCTION(sha256_bytes, sha256_block, 8u)

// Words of a digest as the four bytes that they are in memory.
FN ulong2_t sha_digest(sha_t s, uint half_number)
{
    const uint i = 4u * half_number;
    return ulong2_of(swap32(sha_word(s, i)) | (ulong)swap32(sha_word(s, i + 1u)) << 32,
                     swap32(sha_word(s, i + 2u)) | (ulong)swap32(sha_word(s, i + 3u)) << 32);
}
