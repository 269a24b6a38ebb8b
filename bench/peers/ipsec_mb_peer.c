/*
 * A peer of `crates/crypto/examples/batches.rs`: intel-ipsec-mb over ESP packets.   link: -lIPSec_MB
 *
 *   ipsec_mb_peer SUITE PAYLOAD ASSOCIATIONS SECONDS [BUFFERS [open]]
 *   ipsec_mb_peer check SUITE
 *
 * SUITE is ctr-sha1, cbc-sha1 or gcm (AES-128; HMAC-SHA1-96; a tag of 16 bytes). Prints: MBYTE_PER_S TAG. The first is
 * the best of five rounds, payload over this thread's running time; TAG is the check value of the first packet in
 * hexadecimal, by which the parent sees that both do the same.
 *
 * 256 packets, each in its own buffer, are submitted one after another, and the library's lanes are flushed at the end of
 * the 256, as for a chunk. Headers, trailers and initialisation vectors are written before and stay: the library does
 * cipher and HMAC alone. BUFFERS (256) is the number of packets that take turns: with more than a cache holds, each packet
 * comes from memory. With `open` check values are made first and texts decrypted; nothing is compared.
 *
 * `check` reads ESP packets from standard input, a line of hexadecimal each, SPI 0x1000 and above for associations 0 and
 * above, and prints for each: TEXT TAG, the decrypted text with its trailer and the check value that it must have.
 */
#include <intel-ipsec-mb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 256, ROUNDS = 5, HEADER = 8 };

struct association {
    _Alignas(64) uint8_t enc[16 * 11];
    _Alignas(64) uint8_t dec[16 * 11];
    _Alignas(64) struct gcm_key_data gcm;
    _Alignas(16) uint8_t ipad[20];
    _Alignas(16) uint8_t opad[20];
    uint8_t salt[4];
};

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void die(const char *why)
{
    fprintf(stderr, "ipsec_mb_peer: %s\n", why);
    exit(1);
}

/* The keys of the parent's association `seed`. */
static void expand(IMB_MGR *mgr, struct association *a, unsigned seed)
{
    uint8_t key[20], auth[64] = { 0 }, block[64];
    for (unsigned at = 0; at < 20; at++)
        key[at] = auth[at] = (uint8_t)(at * 7 + seed);
    memcpy(a->salt, key + 16, 4);
    IMB_AES_KEYEXP_128(mgr, key, a->enc, a->dec);
    IMB_AES128_GCM_PRE(mgr, key, &a->gcm);
    for (unsigned at = 0; at < 64; at++)
        block[at] = auth[at] ^ 0x36;
    IMB_SHA1_ONE_BLOCK(mgr, block, a->ipad);
    for (unsigned at = 0; at < 64; at++)
        block[at] = auth[at] ^ 0x5c;
    IMB_SHA1_ONE_BLOCK(mgr, block, a->opad);
}

/* What is common to all jobs of a suite: the packet `p` has `front` bytes in front of `text` bytes. */
static void fill(IMB_JOB *job, const struct association *a, uint8_t *p, const uint8_t *nonce, uint8_t *tag,
                 size_t front, size_t text, int is_gcm, int is_cbc, int is_open)
{
    job->key_len_in_bytes = 16;
    job->cipher_direction = is_open ? IMB_DIR_DECRYPT : IMB_DIR_ENCRYPT;
    job->chain_order = is_open ? IMB_ORDER_HASH_CIPHER : IMB_ORDER_CIPHER_HASH;
    job->src = p;
    job->dst = p + front;
    job->cipher_start_src_offset_in_bytes = front;
    job->msg_len_to_cipher_in_bytes = text;
    job->iv = nonce;
    job->auth_tag_output = tag;
    job->auth_tag_output_len_in_bytes = is_gcm ? 16 : 12;
    if (is_gcm) {
        job->cipher_mode = IMB_CIPHER_GCM;
        job->hash_alg = IMB_AUTH_AES_GMAC;
        job->enc_keys = job->dec_keys = &a->gcm;
        job->iv_len_in_bytes = 12;
        job->u.GCM.aad = p;
        job->u.GCM.aad_len_in_bytes = HEADER;
        job->hash_start_src_offset_in_bytes = front;
        job->msg_len_to_hash_in_bytes = text;
    } else {
        job->cipher_mode = is_cbc ? IMB_CIPHER_CBC : IMB_CIPHER_CNTR;
        job->hash_alg = IMB_AUTH_HMAC_SHA_1;
        job->enc_keys = a->enc;
        job->dec_keys = is_cbc ? a->dec : a->enc;
        job->iv_len_in_bytes = is_cbc ? 16 : 12;
        job->u.HMAC._hashed_auth_key_xor_ipad = a->ipad;
        job->u.HMAC._hashed_auth_key_xor_opad = a->opad;
        job->hash_start_src_offset_in_bytes = 0;
        job->msg_len_to_hash_in_bytes = front + text;
    }
}

/* Opens the packets of standard input. */
static int check(IMB_MGR *mgr, int is_gcm, int is_cbc)
{
    static char line[2 * 65536 + 2];
    static uint8_t p[65536];
    const size_t front = HEADER + (is_cbc ? 16 : 8), icv = is_gcm ? 16 : 12;
    struct association *a = aligned_alloc(64, sizeof *a);
    if (!a)
        die("no memory");
    while (fgets(line, sizeof line, stdin)) {
        const size_t len = strcspn(line, "\r\n") / 2;
        for (size_t at = 0; at < len; at++)
            if (sscanf(line + 2 * at, "%2hhx", &p[at]) != 1)
                die("no hexadecimal digits");
        if (len <= front + icv)
            die("a packet is too short");
        uint8_t tag[64], nonce[16];
        uint32_t spi;
        memcpy(&spi, p, 4);
        expand(mgr, a, __builtin_bswap32(spi) - 0x1000);
        memcpy(nonce, is_cbc ? p + HEADER : a->salt, is_cbc ? 16 : 4);
        if (!is_cbc)
            memcpy(nonce + 4, p + HEADER, 8);
        const size_t text = len - front - icv;
        IMB_JOB *job = IMB_GET_NEXT_JOB(mgr);
        fill(job, a, p, nonce, tag, front, text, is_gcm, is_cbc, 1);
        job = IMB_SUBMIT_JOB(mgr);
        if (!job)
            job = IMB_FLUSH_JOB(mgr);
        if (!job || job->status != IMB_STATUS_COMPLETED)
            die("a job failed");
        for (size_t at = front; at < front + text; at++)
            printf("%02x", p[at]);
        putchar(' ');
        for (size_t at = 0; at < icv; at++)
            printf("%02x", tag[at]);
        putchar('\n');
    }
    return 0;
}

int main(int argc, char **argv)
{
    const int is_check = argc == 3 && !strcmp(argv[1], "check");
    if (!is_check && (argc < 5 || argc > 7))
        die("SUITE PAYLOAD ASSOCIATIONS SECONDS [BUFFERS [open]], or check SUITE");
    const char *suite = argv[is_check ? 2 : 1];
    const int is_ctr = !strcmp(suite, "ctr-sha1"), is_cbc = !strcmp(suite, "cbc-sha1");
    const int is_gcm = !strcmp(suite, "gcm");
    if (is_check) {
        if (!(is_ctr || is_cbc || is_gcm))
            die("no such suite");
        IMB_MGR *own = alloc_mb_mgr(0);
        if (!own)
            die("no memory");
        init_mb_mgr_auto(own, NULL);
        return check(own, is_gcm, is_cbc);
    }
    const size_t total = argc > 5 ? strtoul(argv[5], NULL, 10) / BATCH * BATCH : BATCH;
    const int is_open = argc > 6 && !strcmp(argv[6], "open");
    const size_t payload = strtoul(argv[2], NULL, 10), count = strtoul(argv[3], NULL, 10);
    const double seconds = atof(argv[4]);
    if (!(is_ctr || is_cbc || is_gcm) || !count || payload > 65536 || !total)
        die("no such suite, length or number");

    IMB_MGR *mgr = alloc_mb_mgr(0);
    if (!mgr)
        die("no memory");
    init_mb_mgr_auto(mgr, NULL); /* its best variant for this processor */
    struct association *all = aligned_alloc(64, count * sizeof *all);
    if (!all)
        die("no memory");
    for (size_t at = 0; at < count; at++)
        expand(mgr, &all[at], (unsigned)at);

    const size_t iv_len = is_cbc ? 16 : 8, align = is_cbc ? 16 : 4, icv = is_gcm ? 16 : 12;
    const size_t text = (payload + 2 + align - 1) / align * align, front = HEADER + iv_len;
    const size_t size = (front + text + icv + 63) / 64 * 64;
    uint8_t *buffers = aligned_alloc(64, total * size);
    uint8_t(*nonces)[16] = calloc(total, sizeof *nonces), scratch[64];
    if (!buffers || !nonces)
        die("no memory");
    for (size_t at = 0; at < total; at++) {
        struct association *a = &all[at * 7919 % count];
        uint8_t *p = buffers + at * size, iv[16] = { 0 };
        const uint32_t spi = __builtin_bswap32(0x1000 + (uint32_t)(at * 7919 % count));
        const uint32_t number = __builtin_bswap32((uint32_t)at + 1);
        memset(p, 1, size);
        memcpy(p, &spi, 4);
        memcpy(p + 4, &number, 4);
        memcpy(iv + 4, &number, 4);
        memcpy(p + HEADER, iv, iv_len);
        for (size_t pad = 0; pad < text - payload - 2; pad++)
            p[front + payload + pad] = (uint8_t)(pad + 1);
        p[front + text - 2] = (uint8_t)(text - payload - 2);
        p[front + text - 1] = 4;
        memcpy(nonces[at], is_cbc ? iv : a->salt, is_cbc ? 16 : 4);
        if (!is_cbc)
            memcpy(nonces[at] + 4, iv, 8);
    }

    double best = 0;
    char tag[33] = "";
    size_t begin = 0;
    for (int round = -1; round < ROUNDS; round++) {
        const double begun = cpu_seconds();
        double spent = 0;
        unsigned long batches = 0;
        do {
            unsigned done = 0;
            for (size_t at = begin; at < begin + BATCH; at++) {
                struct association *a = &all[at * 7919 % count];
                uint8_t *p = buffers + at * size;
                IMB_JOB *job = IMB_GET_NEXT_JOB(mgr);
                uint8_t *tag = is_open ? scratch : p + front + text;
                fill(job, a, p, nonces[at], tag, front, text, is_gcm, is_cbc, is_open);
                for (job = IMB_SUBMIT_JOB(mgr); job; job = IMB_GET_COMPLETED_JOB(mgr)) {
                    if (job->status != IMB_STATUS_COMPLETED)
                        die("a job failed");
                    done++;
                }
            }
            for (IMB_JOB *job; (job = IMB_FLUSH_JOB(mgr)); done++)
                if (job->status != IMB_STATUS_COMPLETED)
                    die("a job failed");
            if (done != BATCH)
                die("jobs are missing");
            if (!*tag)
                for (size_t at = 0; at < icv; at++)
                    snprintf(tag + 2 * at, 3, "%02x", buffers[front + text + at]);
            batches++;
            begin = (begin + BATCH) % total;
            spent = cpu_seconds() - begun;
        } while (spent < seconds / ROUNDS);
        const double rate = (double)batches * BATCH * (double)payload / 1e6 / spent;
        if (round >= 0 && rate > best) /* the first round warms up */
            best = rate;
    }
    printf("%.1f %s\n", best, tag);
    return 0;
}
