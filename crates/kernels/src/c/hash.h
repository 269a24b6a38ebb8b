// Hashing, with references in the crate's `hash` module (and, for the flow hash, in `packet::flow`).

FN ulong fold_product(ulong x, ulong by)
{
    return MUL_HI64(x, by) ^ x * by;
}

// One end of a flow in 64 well mixed bits.
FN ulong flow_end(ulong2_t address, uint port)
{
    const ulong x = rotate_left64(address.x * 0x9e3779b97f4a7c15UL, 32u) ^ address.y;
    const ulong spread = (ulong)port * 0xd6e8feb86659fd93UL;
    return fold_product(x ^ spread ^ 0x5851f42d4c957f2dUL, 0xbf58476d1ce4e5b9UL);
}

// The symmetric flow hash: the same for both directions.
FN uint flow_hash(ulong2_t src, ulong2_t dst, uint src_port, uint dst_port, uint protocol)
{
    const ulong x = flow_end(src, src_port) + flow_end(dst, dst_port) + protocol;
    return (uint)fold_product(x, 0x94d049bb133111ebUL);
}

// The finaliser of Murmur3 x86_32: a permutation of 32 bits.
FN uint fmix32(uint h)
{
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return h ^ h >> 16;
}

// The finaliser of Murmur3 x64_128: a permutation of 64 bits.
FN ulong fmix64(ulong h)
{
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdUL;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53UL;
    return h ^ h >> 33;
}

// Murmur3 x86_32 (Appleby), word by word: h starts as the seed and ends in murmur3_end.
FN uint murmur3_scramble(uint word)
{
    return rotate_left32(word * 0xcc9e2d51u, 15u) * 0x1b873593u;
}

FN uint murmur3_add(uint h, uint word)
{
    return rotate_left32(h ^ murmur3_scramble(word), 13u) * 5u + 0xe6546b64u;
}

FN uint murmur3_end(uint h, uint len_bytes)
{
    return fmix32(h ^ len_bytes);
}

// Murmur3 x86_32 of bytes at any offset.
FN uint murmur3_bytes(GLOBAL const uchar *bytes, ulong at, uint len, uint seed)
{
    uint h = seed;
    for (uint i = 0u; i + 4u <= len; i += 4u)
        h = murmur3_add(h, load_le32(bytes, at + i));
    const uint whole = len & ~3u;
    uint tail = 0u;
    for (uint i = whole; i < len; i++)
        tail |= (uint)bytes[at + i] << 8u * (i - whole);
    if (whole != len)
        h ^= murmur3_scramble(tail);
    return murmur3_end(h, len);
}

// Splitmix64 (Steele, Lea, Flood 2014): parameter `index` of the family that `seed` names.
FN ulong hash_parameter(ulong seed, uint index)
{
    ulong x = seed + (ulong)(index + 1u) * 0x9e3779b97f4a7c15UL;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9UL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebUL;
    return x ^ x >> 31;
}

// Multiply-shift (Dietzfelbinger 1996), strongly universal: the sum of a_i x_i and b, of which the upper
// half is the hash. One step a word; starts with b. Two 32-bit multiplications a word on a device.
FN ulong multiply_shift_add(ulong sum, ulong a, uint word)
{
    return sum + a * word;
}

FN uint multiply_shift_end(ulong sum)
{
    return (uint)(sum >> 32);
}

// From a 32-bit hash to 0..n without a division.
FN uint hash_to_range(uint hash, uint n)
{
    return MUL_HI32(hash, n);
}

#define PRIME61 0x1fffffffffffffffUL // 2^61 - 1

// x modulo 2^61 - 1, for any x.
FN ulong mod61(ulong x)
{
    x = (x & PRIME61) + (x >> 61);
    return x >= PRIME61 ? x - PRIME61 : x;
}

// a x + b modulo 2^61 - 1 (Carter and Wegman 1979), for a, x and b below it. Repeated over the words of a
// key, from 1 on, it evaluates a polynomial; once more, with two fresh parameters, it makes the hash.
FN ulong multiply_add61(ulong a, ulong x, ulong b)
{
    const ulong low = a * x, high = MUL_HI64(a, x);
    return mod61(mod61((low & PRIME61) + (low >> 61 | high << 3)) + b);
}
