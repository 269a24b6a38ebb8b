// Multiplication and powers modulo odd numbers of up to MODEXP_WORDS_MAX words (Montgomery 1985), for RSA: a number an item.
//
// Which addresses are read, and what is branched on, follows from lengths alone. A number's words lie `stride` words apart,
// lowest first, so that neighbouring items read neighbouring words.
//
// A key, from its word of the region on, is made by the host (kernels::cipher::modexp_key): [0] words of the modulus n,
// [1] -1/n modulo 2^32, [2] words of the exponent, [3] zero, then n, R^2 modulo n with R = 2^(32 words), the exponent.

#define MODEXP_WORDS_MAX 64u

typedef struct {
    GLOBAL uint *words;
    uint stride;
} number_t;

FN number_t number_of(GLOBAL uint *words, uint stride)
{
    number_t number;
    number.words = words;
    number.stride = stride;
    return number;
}

// Three words, to which products are added.
typedef struct {
    ulong low;
    uint high;
} sum96_t;

FN sum96_t sum96_add(sum96_t sum, uint x, uint y)
{
    const ulong product = (ulong)x * y;
    sum.low += product;
    sum.high += sum.low < product ? 1u : 0u;
    return sum;
}

FN sum96_t sum96_shift(sum96_t sum)
{
    sum.low = sum.low >> 32 | (ulong)sum.high << 32;
    sum.high = 0u;
    return sum;
}

// to = a b / R modulo n, by columns (Koc, Acar, Kaliski 1996, FIPS): a below R, b below n, so that the result is below n. `to`
// may be a or b; `spare` is as long. b's words are `b_stride` apart.
FN void montgomery(number_t to, number_t a, GLOBAL const uint *b, uint b_stride, GLOBAL const uint *n, uint inverse,
                   uint words, number_t spare)
{
    sum96_t sum;
    sum.low = 0UL;
    sum.high = 0u;
    GLOBAL uint *m = spare.words;
    for (uint i = 0u; i < 2u * words; i++) {
        const uint first = i < words ? 0u : i - words + 1u, end = i < words ? i : words;
        for (uint j = first; j < end; j++) {
            sum = sum96_add(sum, a.words[j * a.stride], b[(i - j) * b_stride]);
            sum = sum96_add(sum, m[j * spare.stride], n[i - j]);
        }
        if (i < words) {
            sum = sum96_add(sum, a.words[i * a.stride], b[0]);
            const uint own = (uint)sum.low * inverse;
            m[i * spare.stride] = own;
            sum = sum96_add(sum, own, n[0]);
        } else {
            m[(i - words) * spare.stride] = (uint)sum.low; // no longer needed
        }
        sum = sum96_shift(sum);
    }
    // The result, or n less.
    uint borrow = 0u;
    for (uint i = 0u; i < words; i++)
        borrow = (uint)(((ulong)m[i * spare.stride] - n[i] - borrow) >> 63);
    const uint mask = 0u - ((uint)sum.low | (borrow ^ 1u));
    borrow = 0u;
    for (uint i = 0u; i < words; i++) {
        const ulong differ = (ulong)m[i * spare.stride] - (n[i] & mask) - borrow;
        to.words[i * to.stride] = (uint)differ;
        borrow = (uint)(differ >> 63);
    }
}

// How many numbers modexp needs beside its own.
#define MODEXP_SCRATCH 19u

// x to the key's power, in place. `scratch` has MODEXP_SCRATCH numbers, with the stride of x. Windows of four bits, each taken
// from a table by reading all of it.
FN void modexp(number_t x, GLOBAL const uint *key, GLOBAL uint *scratch)
{
    const uint words = key[0], inverse = key[1], exponent_words = key[2];
    GLOBAL const uint *n = key + 4, *square = n + words, *exponent = square + words;
    const uint stride = x.stride, number = words * stride;
    const number_t power = number_of(scratch + 16u * number, stride), spare = number_of(power.words + number, stride);
    const number_t chosen = number_of(spare.words + number, stride);
    for (uint i = 0u; i < words; i++)
        power.words[i * stride] = i == 0u ? 1u : 0u;
    montgomery(power, power, square, 1u, n, inverse, words, spare);
    montgomery(x, x, square, 1u, n, inverse, words, spare);
    for (uint i = 0u; i < words; i++)
        scratch[i * stride] = power.words[i * stride];
    for (uint entry = 1u; entry < 16u; entry++)
        montgomery(number_of(scratch + entry * number, stride), x, scratch + (entry - 1u) * number, stride, n, inverse,
                   words, spare);
    // Four squarings and a product for each window.
    for (uint window = 8u * exponent_words; window-- > 0u;) {
        const uint digit = exponent[window / 8u] >> 4u * (window & 7u) & 15u;
        for (uint step = 0u; step < 5u; step++) {
            for (uint i = 0u; i < words; i++) {
                uint word = power.words[i * stride];
                if (step == 4u) {
                    word = 0u;
                    for (uint entry = 0u; entry < 16u; entry++) {
                        const uint differ = entry ^ digit;
                        word |= scratch[entry * number + i * stride] & (((differ - 1u) & ~differ) >> 31) * 0xffffffffu;
                    }
                }
                chosen.words[i * stride] = word;
            }
            montgomery(power, power, chosen.words, stride, n, inverse, words, spare);
        }
    }
    for (uint i = 0u; i < words; i++)
        chosen.words[i * stride] = i == 0u ? 1u : 0u;
    montgomery(x, power, chosen.words, stride, n, inverse, words, spare);
}
