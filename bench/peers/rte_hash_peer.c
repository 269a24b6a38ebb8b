/*
 * A peer of `shadeline bench hash`: DPDK's rte_hash behind a line protocol.
 *
 * The parent writes one command a line to stdin and reads one answer a line from stdout: "ok …" or
 * "error …". Everything that DPDK itself prints goes to stderr. Keys are made here, as the parent makes
 * them, because a table of half a gigabyte would be long on its way.
 *
 *   table BYTES COUNT SEED   COUNT keys of BYTES (8 or 16) bytes
 *   keys COUNT SEED          COUNT of these keys, at random, to be looked up
 *   round BURST              one pass over the keys:  ok SECONDS SUM
 *                            SECONDS: of this thread's running time; SUM: wrapping sum of all answers
 *   check                    ok HASH: FNV-1a over the answers in order, each as 8 bytes little-endian
 *   pages                    ok RSS_KB HUGE_KB
 *   quit
 *
 * Key number i is r = splitmix64 of SEED + (i + 1) * 0x9e3779b97f4a7c15, or r and r times that constant; its
 * value is r >> 1, or the lower half of r, >> 1. Lookup j asks for key number (r_j * COUNT) >> 64.
 *
 * Page size: as in rte_fib_peer.c, anonymous memory advised to huge pages before it is touched.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
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

static struct rte_hash *table;
static size_t key_bytes, table_len;
static uint64_t table_seed;
static uint64_t *keys; /* one or two words a key */
static size_t keys_len, keys_bytes;

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

static uint64_t splitmix(uint64_t seed, uint64_t index)
{
	uint64_t z = seed + (index + 1) * GOLDEN;

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static void *huge(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	(void)madvise(at, bytes, MADV_HUGEPAGE); /* advice */
	return at;
}

static void load(size_t bytes, size_t count, uint64_t seed)
{
	struct rte_hash_parameters parameters = {
		.name = "peer",
		.entries = (uint32_t)count,
		.key_len = (uint32_t)bytes,
		.hash_func = rte_hash_crc,
		.socket_id = SOCKET_ID_ANY,
		.extra_flag = RTE_HASH_EXTRA_FLAGS_EXT_TABLE, /* no key is refused */
	};

	rte_hash_free(table);
	table = rte_hash_create(&parameters);
	if (table == NULL) {
		fprintf(answers, "error rte_hash_create: %s\n", rte_strerror(rte_errno));
		return;
	}
	for (size_t i = 0; i < count; i++) {
		uint64_t r = splitmix(seed, i), key[2] = { r, r * GOLDEN };
		uint64_t value = bytes == 8 ? r >> 1 : (uint32_t)r >> 1;
		int rc = rte_hash_add_key_data(table, key, (void *)(uintptr_t)value);
		if (rc != 0) {
			fprintf(answers, "error rte_hash_add_key_data, key %zu: %s\n", i,
				rte_strerror(-rc));
			return;
		}
	}
	key_bytes = bytes;
	table_len = count;
	table_seed = seed;
	fprintf(answers, "ok %zu\n", count);
}

static void load_keys(size_t count, uint64_t seed)
{
	if (keys != NULL)
		munmap(keys, keys_bytes);
	keys_len = 0;
	keys_bytes = count * key_bytes;
	keys = huge(keys_bytes);
	if (keys == NULL) {
		fprintf(answers, "error %zu keys: %s\n", count, strerror(errno));
		return;
	}
	for (size_t j = 0; j < count; j++) {
		unsigned __int128 product = (unsigned __int128)splitmix(seed, j) * table_len;
		uint64_t r = splitmix(table_seed, (uint64_t)(product >> 64));

		if (key_bytes == 8) {
			keys[j] = r;
		} else {
			keys[2 * j] = r;
			keys[2 * j + 1] = r * GOLDEN;
		}
	}
	keys_len = count;
	fprintf(answers, "ok %zu\n", count);
}

/* Time that this thread ran: what other programs on the machine take does not count. */
static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Looks up burst by burst; the sum of the answers, or with `hash` their FNV-1a. A miss counts all ones. */
static bool pass(size_t burst, bool hash, uint64_t *result)
{
	const void *pointers[RTE_HASH_LOOKUP_BULK_MAX];
	void *data[RTE_HASH_LOOKUP_BULK_MAX];
	const uint8_t *bytes = (const uint8_t *)keys;
	uint64_t sum = 0, fnv = UINT64_C(0xcbf29ce484222325);

	for (size_t at = 0; at < keys_len; at += burst) {
		uint32_t n = (uint32_t)RTE_MIN(burst, keys_len - at);
		uint64_t hits = 0;

		for (uint32_t i = 0; i < n; i++)
			pointers[i] = bytes + (at + i) * key_bytes;
		int rc = rte_hash_lookup_bulk_data(table, pointers, n, &hits, data);
		if (rc < 0) {
			fprintf(answers, "error rte_hash_lookup_bulk_data: %s\n", rte_strerror(-rc));
			return false;
		}
		for (uint32_t i = 0; i < n; i++) {
			uint64_t value = hits >> i & 1 ? (uint64_t)(uintptr_t)data[i] : UINT64_MAX;

			sum += value;
			for (unsigned int shift = 0; hash && shift < 64; shift += 8) {
				fnv ^= value >> shift & 0xff;
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

	if (pass(RTE_HASH_LOOKUP_BULK_MAX, true, &hash))
		fprintf(answers, "ok %016" PRIx64 "\n", hash);
}

static void pages(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	long rss = -1, on_huge = -1;

	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		(void)sscanf(line, "Rss: %ld", &rss);
		(void)sscanf(line, "AnonHugePages: %ld", &on_huge);
	}
	if (file != NULL)
		fclose(file);
	fprintf(answers, "ok %ld %ld\n", rss, on_huge);
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
	char line[4096], command[32];

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
		uint64_t number[3] = { 0 };
		int words = sscanf(line, "%31s %" SCNu64 " %" SCNu64 " %" SCNu64, command, &number[0],
				   &number[1], &number[2]);

		if (words < 1)
			continue;
		if (strcmp(command, "quit") == 0) {
			fprintf(answers, "ok\n");
			break;
		} else if (strcmp(command, "table") == 0 && words == 4 &&
			   (number[0] == 8 || number[0] == 16) && number[1] > 0) {
			load(number[0], number[1], number[2]);
		} else if (strcmp(command, "pages") == 0) {
			pages();
		} else if (table_len == 0) {
			fprintf(answers, "error no table is loaded\n");
		} else if (strcmp(command, "keys") == 0 && words == 3 && number[0] > 0) {
			load_keys(number[0], number[1]);
		} else if (strcmp(command, "round") == 0 && keys_len > 0 && number[0] > 0 &&
			   number[0] <= RTE_HASH_LOOKUP_BULK_MAX) {
			run_round(number[0]);
		} else if (strcmp(command, "check") == 0 && keys_len > 0) {
			run_check();
		} else {
			line[strcspn(line, "\n")] = '\0';
			fprintf(answers, "error not understood, or too early: %s\n", line);
		}
	}
	rte_hash_free(table);
	if (rte_eal_cleanup() != 0)
		fprintf(stderr, "rte_eal_cleanup failed\n");
	return 0;
}
