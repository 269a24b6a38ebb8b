// GHASH (SP 800-38D §6.4) without tables and branches, behind aes.h: an element of GF(2^128) is two numbers of 64 bits, of
// which bit 63 of `x` is the coefficient of 1 and bit 0 of `y` that of the 127th power.
//
// A device has no multiplication without carries. One of integers whose bits stand four apart makes no carry reach the
// next one: at most eight ones meet in a place (Pornin, BearSSL's notes on constant time; here of 32 bits to 64).

#define GHASH_EVERY_FOURTH 0x1111111111111111UL

// The product of two polynomials of 32 bits.
FN ulong clmul32(uint x, uint y)
{
    const uint every = 0x11111111u;
    const ulong x0 = x & every, x1 = x & every << 1, x2 = x & every << 2, x3 = x & every << 3;
    const ulong y0 = y & every, y1 = y & every << 1, y2 = y & every << 2, y3 = y & every << 3;
    const ulong z0 = x0 * y0 ^ x1 * y3 ^ x2 * y2 ^ x3 * y1;
    const ulong z1 = x0 * y1 ^ x1 * y0 ^ x2 * y3 ^ x3 * y2;
    const ulong z2 = x0 * y2 ^ x1 * y1 ^ x2 * y0 ^ x3 * y3;
    const ulong z3 = x0 * y3 ^ x1 * y2 ^ x2 * y1 ^ x3 * y0;
    return (z0 & GHASH_EVERY_FOURTH) | (z1 & GHASH_EVERY_FOURTH << 1) | (z2 & GHASH_EVERY_FOURTH << 2)
        | (z3 & GHASH_EVERY_FOURTH << 3);
}

// The product of two polynomials of 64 bits (Karatsuba): `x` its upper half.
FN ulong2_t clmul64(ulong x, ulong y)
{
    const ulong low = clmul32((uint)x, (uint)y), high = clmul32((uint)(x >> 32), (uint)(y >> 32));
    const ulong middle = clmul32((uint)x ^ (uint)(x >> 32), (uint)y ^ (uint)(y >> 32)) ^ low ^ high;
    return ulong2_of(high ^ middle >> 32, low ^ middle << 32);
}

FN ulong2_t ghash_multiply(ulong2_t a, ulong2_t b)
{
    const ulong2_t high = clmul64(a.x, b.x), low = clmul64(a.y, b.y);
    const ulong2_t middle = clmul64(a.x ^ a.y, b.x ^ b.y);
    ulong z3 = high.x, z2 = high.y ^ middle.x ^ high.x ^ low.x, z1 = low.x ^ middle.y ^ high.y ^ low.y, z0 = low.y;
    // The order of the bits is the other one: a product of 255 bits is one bit too low.
    z3 = z3 << 1 | z2 >> 63;
    z2 = z2 << 1 | z1 >> 63;
    z1 = z1 << 1 | z0 >> 63;
    z0 = z0 << 1;
    // Powers from 128 on, modulo 1 + x + x^2 + x^7 + x^128: first those that fold twice.
    z2 ^= z0 ^ z0 >> 1 ^ z0 >> 2 ^ z0 >> 7;
    z1 ^= z0 << 63 ^ z0 << 62 ^ z0 << 57;
    z3 ^= z1 ^ z1 >> 1 ^ z1 >> 2 ^ z1 >> 7;
    z2 ^= z1 << 63 ^ z1 << 62 ^ z1 << 57;
    return ulong2_of(z3, z2);
}

FN ulong2_t ghash_of(aes_block_t block)
{
    return ulong2_of((ulong)swap32(block.a) << 32 | swap32(block.b), (ulong)swap32(block.c) << 32 | swap32(block.d));
}

// One block more.
FN ulong2_t ghash_add(ulong2_t sum, aes_block_t block, ulong2_t h)
{
    const ulong2_t x = ghash_of(block);
    return ghash_multiply(ulong2_of(sum.x ^ x.x, sum.y ^ x.y), h);
}

// The hash of `len` bytes, zeros behind the last, after others whose hash is `sum`.
FN ulong2_t ghash_bytes(ulong2_t sum, GLOBAL const uchar *bytes, ulong at, uint len, ulong2_t h)
{
    for (uint from = 0u; from < len; from += 16u)
        sum = ghash_add(sum, aes_load(bytes, at, len, from), h);
    return sum;
}

// The last block: lengths of additional data and text in bits.
FN aes_block_t ghash_lengths(uint aad_bytes, uint text_bytes)
{
    return aes_block_of(swap32(aad_bytes >> 29), swap32(aad_bytes << 3), swap32(text_bytes >> 29), swap32(text_bytes << 3));
}

// x times the `exponent`-th power of H, at least the first. `powers` are the first `count` of them, two numbers each.
FN ulong2_t ghash_power(ulong2_t x, GLOBAL const ulong2_t *powers, uint count, uint exponent)
{
    if (count == 0u)
        return ulong2_of(0UL, 0UL);
    while (exponent > 0u) {
        const uint now = exponent < count ? exponent : count;
        x = ghash_multiply(x, LOAD(powers + now - 1u));
        exponent -= now;
    }
    return x;
}
