/*
 * A peer of `shadeline bench classify`: DPDK's rte_acl behind a line protocol.
 *
 * The parent writes one command a line to stdin and reads one answer a line from stdout: "ok …" or
 * "error …". Everything that DPDK itself prints goes to stderr.
 *
 *   load FILE       rules, the best first, 24 bytes each in the machine's order: src, dst (4 bytes each),
 *                   sport low, high, dport low, high (2 each), src length, dst length, protocol, its mask
 *                   (1 each), 4 of padding:  ok SECONDS BYTES
 *                   SECONDS: of the build; BYTES: of the tables that lookups read
 *   keys FILE       headers, 16 bytes each: protocol, 3 of padding, src, dst, sport, dport, in network order
 *   variant NAME    scalar, sse, avx2, avx512x16 or avx512x32: an error where processor or library have it not
 *   round BURST     one pass over the headers:  ok SECONDS SUM
 *                   SECONDS: of this thread's running time; SUM: wrapping sum of all answers
 *   check           ok HASH: FNV-1a over the answers in order, each as 4 bytes little-endian
 *   quit
 *
 * An answer is the index of the rule, from 1; 0 where none matches.
 *
 * Page size: as in rte_fib_peer.c, anonymous memory advised to huge pages before it is touched.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <rte_acl.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_memory.h>
#include <rte_version.h>

/* Takes the place of libc's for EAL: see rte_fib_peer.c. */
int memfd_create(const char *name, unsigned int flags)
{
	(void)name;
	(void)flags;
	errno = ENOSYS;
	return -1;
}

static FILE *answers; /* the parent's end; stdout itself is stderr */

struct record {
	uint32_t src, dst;
	uint16_t sport[2], dport[2];
	uint8_t src_len, dst_len, proto, proto_mask;
	uint32_t padding;
};

struct key {
	uint8_t proto, padding[3];
	uint32_t src, dst;
	uint16_t sport, dport;
};

enum { PROTO, SRC, DST, SPORT, DPORT, FIELDS };

RTE_ACL_RULE_DEF(rule, FIELDS);

/* The first field is one byte, as rte_acl wants it; the ports are read as one word. */
static const struct rte_acl_field_def fields[FIELDS] = {
	{ .type = RTE_ACL_FIELD_TYPE_BITMASK, .size = 1, .field_index = PROTO, .input_index = 0,
	  .offset = offsetof(struct key, proto) },
	{ .type = RTE_ACL_FIELD_TYPE_MASK, .size = 4, .field_index = SRC, .input_index = 1,
	  .offset = offsetof(struct key, src) },
	{ .type = RTE_ACL_FIELD_TYPE_MASK, .size = 4, .field_index = DST, .input_index = 2,
	  .offset = offsetof(struct key, dst) },
	{ .type = RTE_ACL_FIELD_TYPE_RANGE, .size = 2, .field_index = SPORT, .input_index = 3,
	  .offset = offsetof(struct key, sport) },
	{ .type = RTE_ACL_FIELD_TYPE_RANGE, .size = 2, .field_index = DPORT, .input_index = 3,
	  .offset = offsetof(struct key, dport) },
};

#define BURST_MAX 4096

static struct rte_acl_ctx *table;
static struct key *keys;
static size_t keys_len, keys_bytes;

static void *huge(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	(void)madvise(at, bytes, MADV_HUGEPAGE); /* advice */
	return at;
}

/* The whole of a file of records; NULL, and an answer, where it cannot be read. */
static void *read_records(const char *path, size_t size, size_t *count, size_t *bytes)
{
	FILE *file = fopen(path, "r");
	void *records = NULL;
	long length;

	if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (length = ftell(file)) <= 0) {
		fprintf(answers, "error %s: %s\n", path, strerror(errno));
	} else {
		rewind(file);
		*bytes = (size_t)length;
		*count = *bytes / size;
		records = huge(*bytes);
		if (records != NULL && fread(records, size, *count, file) != *count) {
			munmap(records, *bytes);
			records = NULL;
		}
		if (records == NULL)
			fprintf(answers, "error %s: cannot be read\n", path);
	}
	if (file != NULL)
		fclose(file);
	return records;
}

/* Bytes that DPDK's heap has handed out. */
static size_t allocated(void)
{
	struct rte_malloc_socket_stats stats;

	return rte_malloc_get_socket_stats(0, &stats) == 0 ? stats.heap_allocsz_bytes : 0;
}

/* Time that this thread ran: what other programs on the machine take does not count. */
static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void load(const char *path)
{
	size_t count = 0, bytes = 0;
	struct record *records = read_records(path, sizeof(*records), &count, &bytes);
	struct rte_acl_param parameters = {
		.name = "peer",
		.socket_id = SOCKET_ID_ANY,
		.rule_size = RTE_ACL_RULE_SZ(FIELDS),
		.max_rule_num = (uint32_t)count,
	};
	struct rte_acl_config config = { .num_categories = 1, .num_fields = FIELDS };

	if (records == NULL)
		return;
	memcpy(config.defs, fields, sizeof(fields));
	rte_acl_free(table);
	table = rte_acl_create(&parameters);
	int rc = table == NULL ? -rte_errno : 0;
	for (size_t i = 0; rc == 0 && i < count; i++) {
		const struct record *r = &records[i];
		struct rule rule = {
			.data = { .category_mask = 1, .priority = RTE_ACL_MAX_PRIORITY - (int32_t)i,
				  .userdata = (uint32_t)i + 1 },
		};

		rule.field[PROTO].value.u8 = r->proto;
		rule.field[PROTO].mask_range.u8 = r->proto_mask;
		rule.field[SRC].value.u32 = r->src;
		rule.field[SRC].mask_range.u32 = r->src_len;
		rule.field[DST].value.u32 = r->dst;
		rule.field[DST].mask_range.u32 = r->dst_len;
		rule.field[SPORT].value.u16 = r->sport[0];
		rule.field[SPORT].mask_range.u16 = r->sport[1];
		rule.field[DPORT].value.u16 = r->dport[0];
		rule.field[DPORT].mask_range.u16 = r->dport[1];
		rc = rte_acl_add_rules(table, (struct rte_acl_rule *)&rule, 1);
	}
	munmap(records, bytes);
	size_t before = allocated();
	double start = now();
	if (rc == 0)
		rc = rte_acl_build(table, &config);
	if (rc != 0) {
		fprintf(answers, "error rte_acl, %zu rules: %s\n", count, rte_strerror(-rc));
		rte_acl_free(table);
		table = NULL;
		return;
	}
	double seconds = now() - start;
	fprintf(answers, "ok %.9f %zu\n", seconds, allocated() - before);
}

static void load_keys(const char *path)
{
	if (keys != NULL)
		munmap(keys, keys_bytes);
	keys_len = 0;
	keys = read_records(path, sizeof(*keys), &keys_len, &keys_bytes);
	if (keys != NULL)
		fprintf(answers, "ok %zu\n", keys_len);
}

static void variant(const char *name)
{
	static const struct {
		const char *name;
		enum rte_acl_classify_alg alg;
	} known[] = {
		{ "scalar", RTE_ACL_CLASSIFY_SCALAR },	     { "sse", RTE_ACL_CLASSIFY_SSE },
		{ "avx2", RTE_ACL_CLASSIFY_AVX2 },	     { "avx512x16", RTE_ACL_CLASSIFY_AVX512X16 },
		{ "avx512x32", RTE_ACL_CLASSIFY_AVX512X32 },
	};

	for (size_t i = 0; i < RTE_DIM(known); i++) {
		if (strcmp(name, known[i].name) != 0)
			continue;
		int rc = rte_acl_set_ctx_classify(table, known[i].alg);
		if (rc == 0)
			fprintf(answers, "ok\n");
		else
			fprintf(answers, "error %s: %s\n", name, rte_strerror(-rc));
		return;
	}
	fprintf(answers, "error no variant %s\n", name);
}

/* Classifies burst by burst; the sum of the answers, or with `hash` their FNV-1a. */
static bool pass(size_t burst, bool hash, uint64_t *result)
{
	static const uint8_t *data[BURST_MAX];
	static uint32_t found[BURST_MAX];
	uint64_t sum = 0, fnv = UINT64_C(0xcbf29ce484222325);

	for (size_t at = 0; at < keys_len; at += burst) {
		uint32_t n = (uint32_t)RTE_MIN(burst, keys_len - at);

		for (uint32_t i = 0; i < n; i++)
			data[i] = (const uint8_t *)&keys[at + i];
		int rc = rte_acl_classify(table, data, found, n, 1);
		if (rc != 0) {
			fprintf(answers, "error rte_acl_classify: %s\n", rte_strerror(-rc));
			return false;
		}
		for (uint32_t i = 0; i < n; i++) {
			sum += found[i];
			for (unsigned int shift = 0; hash && shift < 32; shift += 8) {
				fnv ^= found[i] >> shift & 0xff;
				fnv *= UINT64_C(0x100000001b3);
			}
		}
	}
	*result = hash ? fnv : sum;
	return true;
}

static void run_round(size_t burst)
{
	uint64_t sum;
	double start = now();

	if (pass(burst, false, &sum))
		fprintf(answers, "ok %.9f %" PRIu64 "\n", now() - start, sum);
}

static void run_check(void)
{
	uint64_t hash;

	if (pass(256, true, &hash))
		fprintf(answers, "ok %016" PRIx64 "\n", hash);
}

static int advise(const struct rte_memseg_list *list, void *arg)
{
	(void)arg;
	if (madvise(list->base_va, list->len, MADV_HUGEPAGE) != 0)
		fprintf(stderr, "no huge pages for %zu bytes: %s\n", list->len, strerror(errno));
	return 0;
}

int main(int argc, char **argv)
{
	char *memory_mb = argc > 1 ? argv[1] : "4096";
	char lcores[32] = "--lcores=0@0";
	char line[4096], command[32], argument[2048];

	int own = dup(STDOUT_FILENO);
	answers = own < 0 ? NULL : fdopen(own, "w");
	if (answers == NULL || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return 1;
	setvbuf(answers, NULL, _IOLBF, 0);

	/* EAL pins the thread: to the first core it may use, and what the parent chose is put back. */
	cpu_set_t cores;
	bool pinned = sched_getaffinity(0, sizeof(cores), &cores) == 0;
	for (int core = 0; pinned && core < CPU_SETSIZE; core++) {
		if (CPU_ISSET(core, &cores)) {
			snprintf(lcores, sizeof(lcores), "--lcores=0@%d", core);
			break;
		}
	}
	char *eal[] = { argv[0], lcores, "--no-pci", "--no-telemetry", "--no-shconf", "--no-huge",
			"-m", memory_mb, "--force-max-simd-bitwidth=512", "--log-level=4", NULL };
	if (rte_eal_init((int)RTE_DIM(eal) - 1, eal) < 0) {
		fprintf(answers, "error rte_eal_init: %s\n", rte_strerror(rte_errno));
		return 1;
	}
	if (pinned && sched_setaffinity(0, sizeof(cores), &cores) != 0)
		fprintf(stderr, "sched_setaffinity: %s\n", strerror(errno));
	rte_memseg_list_walk(advise, NULL);
	fprintf(answers, "ok %s\n", rte_version());

	while (fgets(line, sizeof(line), stdin) != NULL) {
		size_t burst = 0;
		int words = sscanf(line, "%31s %2047s", command, argument);

		if (words < 1)
			continue;
		if (words == 2)
			burst = strtoul(argument, NULL, 10);
		if (strcmp(command, "quit") == 0) {
			fprintf(answers, "ok\n");
			break;
		} else if (strcmp(command, "load") == 0 && words == 2) {
			load(argument);
		} else if (strcmp(command, "keys") == 0 && words == 2) {
			load_keys(argument);
		} else if (table == NULL) {
			fprintf(answers, "error no table is loaded\n");
		} else if (strcmp(command, "variant") == 0 && words == 2) {
			variant(argument);
		} else if (strcmp(command, "round") == 0 && keys_len > 0 && burst > 0 &&
			   burst <= BURST_MAX) {
			run_round(burst);
		} else if (strcmp(command, "check") == 0 && keys_len > 0) {
			run_check();
		} else {
			line[strcspn(line, "\n")] = '\0';
			fprintf(answers, "error not understood, or too early: %s\n", line);
		}
	}
	rte_acl_free(table);
	if (rte_eal_cleanup() != 0)
		fprintf(stderr, "rte_eal_cleanup failed\n");
	return 0;
}
