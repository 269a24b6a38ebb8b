/*
 * A peer of `shadeline bench lpm4 | lpm6`: DPDK's rte_fib and rte_fib6 behind a line protocol.
 *
 * The parent writes one command a line to stdin and reads one answer a line from stdout: "ok …" or
 * "error …". Everything that DPDK itself prints goes to stderr.
 *
 *   load4 FILE [TBL8]   table of 12-byte records: address, length, next hop (u32 each, host order)
 *   load6 FILE [TBL8]   table of 24-byte records: address (16 bytes, network order), length, next hop
 *   keys4 FILE          u32 addresses, host order
 *   keys6 FILE          16-byte addresses, network order
 *   variant4 NAME       default | scalar_macro | scalar_inline | scalar_uni | avx512
 *   variant6 NAME       default | scalar | avx512
 *   round4 BURST        one pass over the keys:  ok SECONDS SUM
 *   round6 BURST        SECONDS: of this thread's running time; SUM: wrapping sum of all answers
 *   check4              ok HASH: FNV-1a over the answers in order, each as 4 bytes little-endian
 *   check6
 *   quit
 *
 * TBL8: extension groups, 2^18 by default. A miss answers 0. Next hops have 4 bytes, as ours.
 *
 * Page size: EAL is started without hugetlbfs, so that neither root nor reserved pages are needed.
 * It would then take 4 KB pages of a memfd. `memfd_create` is refused here, which makes EAL map
 * anonymous memory, and that is advised to huge pages before it is touched: what our tables do. The
 * answer to `pages` says how much of it the system granted.
 *
 *   pages               ok RSS_KB HUGE_KB
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_memory.h>
#include <rte_version.h>

/* Takes the place of libc's for EAL (see above). */
int memfd_create(const char *name, unsigned int flags)
{
	(void)name;
	(void)flags;
	errno = ENOSYS;
	return -1;
}

static FILE *answers; /* the parent's end; stdout itself is stderr */

static struct rte_fib *fib4;
static struct rte_fib6 *fib6;
static uint32_t *keys4;
static size_t keys4_len;
static uint8_t (*keys6)[RTE_FIB6_IPV6_ADDR_SIZE];
static size_t keys6_len;

enum { BURST_MAX = 4096 };

/* The answers of one burst, aligned to a cache line. */
static uint64_t burst_out[BURST_MAX] __attribute__((aligned(64)));

struct route4 {
	uint32_t addr, len, next_hop;
};

struct route6 {
	uint8_t addr[RTE_FIB6_IPV6_ADDR_SIZE];
	uint32_t len, next_hop;
};

/* Reads a whole file into huge-page memory; NULL after it has answered an error. */
static void *read_file(const char *path, size_t record, size_t *count)
{
	FILE *file = fopen(path, "rb");
	struct stat st;
	void *bytes = NULL;

	if (file == NULL || fstat(fileno(file), &st) != 0) {
		fprintf(answers, "error %s: %s\n", path, strerror(errno));
		goto out;
	}
	*count = (size_t)st.st_size / record;
	if (*count == 0 || (size_t)st.st_size % record != 0) {
		fprintf(answers, "error %s: %jd bytes are no whole number of records of %zu\n",
			path, (intmax_t)st.st_size, record);
		goto out;
	}
	bytes = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bytes == MAP_FAILED) {
		bytes = NULL;
		fprintf(answers, "error %s: %s\n", path, strerror(errno));
		goto out;
	}
	(void)madvise(bytes, (size_t)st.st_size, MADV_HUGEPAGE); /* advice */
	if (fread(bytes, record, *count, file) != *count) {
		fprintf(answers, "error %s: short read\n", path);
		munmap(bytes, (size_t)st.st_size);
		bytes = NULL;
	}
out:
	if (file != NULL)
		fclose(file);
	return bytes;
}

static void load4(const char *path, uint32_t tbl8)
{
	size_t count;
	struct route4 *routes = read_file(path, sizeof(*routes), &count);

	if (routes == NULL)
		return;
	rte_fib_free(fib4);
	struct rte_fib_conf conf = {
		.type = RTE_FIB_DIR24_8,
		.default_nh = 0,
		.max_routes = (int)count + 16,
		.dir24_8 = { .nh_sz = RTE_FIB_DIR24_8_4B, .num_tbl8 = tbl8 },
	};
	fib4 = rte_fib_create("peer4", SOCKET_ID_ANY, &conf);
	if (fib4 == NULL) {
		fprintf(answers, "error rte_fib_create: %s\n", rte_strerror(rte_errno));
		goto out;
	}
	for (size_t i = 0; i < count; i++) {
		int rc = rte_fib_add(fib4, routes[i].addr, (uint8_t)routes[i].len,
				     routes[i].next_hop);
		if (rc != 0) {
			fprintf(answers, "error rte_fib_add, route %zu: %s\n", i,
				rte_strerror(-rc));
			goto out;
		}
	}
	fprintf(answers, "ok %zu\n", count);
out:
	munmap(routes, count * sizeof(*routes));
}

static void load6(const char *path, uint32_t tbl8)
{
	size_t count;
	struct route6 *routes = read_file(path, sizeof(*routes), &count);

	if (routes == NULL)
		return;
	rte_fib6_free(fib6);
	struct rte_fib6_conf conf = {
		.type = RTE_FIB6_TRIE,
		.default_nh = 0,
		/* its RIB counts the nodes in between as routes */
		.max_routes = 2 * (int)count + 16,
		.trie = { .nh_sz = RTE_FIB6_TRIE_4B, .num_tbl8 = tbl8 },
	};
	fib6 = rte_fib6_create("peer6", SOCKET_ID_ANY, &conf);
	if (fib6 == NULL) {
		fprintf(answers, "error rte_fib6_create: %s\n", rte_strerror(rte_errno));
		goto out;
	}
	for (size_t i = 0; i < count; i++) {
		int rc = rte_fib6_add(fib6, routes[i].addr, (uint8_t)routes[i].len,
				      routes[i].next_hop);
		if (rc != 0) {
			fprintf(answers, "error rte_fib6_add, route %zu: %s\n", i,
				rte_strerror(-rc));
			goto out;
		}
	}
	fprintf(answers, "ok %zu\n", count);
out:
	munmap(routes, count * sizeof(*routes));
}

static void load_keys4(const char *path)
{
	size_t count;
	uint32_t *keys = read_file(path, sizeof(*keys), &count);

	if (keys == NULL)
		return;
	if (keys4 != NULL)
		munmap(keys4, keys4_len * sizeof(*keys4));
	keys4 = keys;
	keys4_len = count;
	fprintf(answers, "ok %zu\n", count);
}

static void load_keys6(const char *path)
{
	size_t count;
	void *keys = read_file(path, sizeof(*keys6), &count);

	if (keys == NULL)
		return;
	if (keys6 != NULL)
		munmap(keys6, keys6_len * sizeof(*keys6));
	keys6 = keys;
	keys6_len = count;
	fprintf(answers, "ok %zu\n", count);
}

static void variant4(const char *name)
{
	static const struct {
		const char *name;
		enum rte_fib_lookup_type type;
	} types[] = {
		{ "default", RTE_FIB_LOOKUP_DEFAULT },
		{ "scalar_macro", RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO },
		{ "scalar_inline", RTE_FIB_LOOKUP_DIR24_8_SCALAR_INLINE },
		{ "scalar_uni", RTE_FIB_LOOKUP_DIR24_8_SCALAR_UNI },
		{ "avx512", RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512 },
	};

	for (size_t i = 0; i < RTE_DIM(types); i++) {
		if (strcmp(name, types[i].name) != 0)
			continue;
		int rc = rte_fib_select_lookup(fib4, types[i].type);
		if (rc == 0)
			fprintf(answers, "ok\n");
		else
			fprintf(answers, "error variant %s: %s\n", name, rte_strerror(-rc));
		return;
	}
	fprintf(answers, "error no variant %s\n", name);
}

static void variant6(const char *name)
{
	static const struct {
		const char *name;
		enum rte_fib6_lookup_type type;
	} types[] = {
		{ "default", RTE_FIB6_LOOKUP_DEFAULT },
		{ "scalar", RTE_FIB6_LOOKUP_TRIE_SCALAR },
		{ "avx512", RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512 },
	};

	for (size_t i = 0; i < RTE_DIM(types); i++) {
		if (strcmp(name, types[i].name) != 0)
			continue;
		int rc = rte_fib6_select_lookup(fib6, types[i].type);
		if (rc == 0)
			fprintf(answers, "ok\n");
		else
			fprintf(answers, "error variant %s: %s\n", name, rte_strerror(-rc));
		return;
	}
	fprintf(answers, "error no variant %s\n", name);
}

/* Time that this thread ran: what other programs on the machine take does not count. */
static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Looks up burst by burst; the sum of the answers, or with `hash` their FNV-1a. */
static bool pass(bool v6, size_t burst, bool hash, uint64_t *result)
{
	size_t len = v6 ? keys6_len : keys4_len;
	uint64_t sum = 0, fnv = UINT64_C(0xcbf29ce484222325);

	for (size_t at = 0; at < len; at += burst) {
		size_t n = RTE_MIN(burst, len - at);
		int rc = v6 ? rte_fib6_lookup_bulk(fib6, &keys6[at], burst_out, (int)n)
			    : rte_fib_lookup_bulk(fib4, &keys4[at], burst_out, (int)n);
		if (rc != 0) {
			fprintf(answers, "error lookup_bulk: %s\n", rte_strerror(-rc));
			return false;
		}
		if (!hash) {
			for (size_t i = 0; i < n; i++)
				sum += burst_out[i];
			continue;
		}
		for (size_t i = 0; i < n; i++) {
			for (unsigned int shift = 0; shift < 32; shift += 8) {
				fnv ^= burst_out[i] >> shift & 0xff;
				fnv *= UINT64_C(0x100000001b3);
			}
		}
	}
	*result = hash ? fnv : sum;
	return true;
}

static void run_round(bool v6, size_t burst)
{
	uint64_t sum;
	double start = now();

	if (pass(v6, burst, false, &sum))
		fprintf(answers, "ok %.9f %" PRIu64 "\n", now() - start, sum);
}

static void run_check(bool v6)
{
	uint64_t hash;

	if (pass(v6, 256, true, &hash))
		fprintf(answers, "ok %016" PRIx64 "\n", hash);
}

static void pages(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	long rss = -1, huge = -1;

	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		(void)sscanf(line, "Rss: %ld", &rss);
		(void)sscanf(line, "AnonHugePages: %ld", &huge);
	}
	if (file != NULL)
		fclose(file);
	fprintf(answers, "ok %ld %ld\n", rss, huge);
}

static int advise(const struct rte_memseg_list *list, void *arg)
{
	(void)arg;
	if (madvise(list->base_va, list->len, MADV_HUGEPAGE) != 0)
		fprintf(stderr, "no huge pages for %zu bytes: %s\n", list->len, strerror(errno));
	return 0;
}

static bool ready(bool v6, bool need_keys)
{
	if (v6 ? fib6 == NULL : fib4 == NULL) {
		fprintf(answers, "error no table is loaded\n");
		return false;
	}
	if (need_keys && (v6 ? keys6_len : keys4_len) == 0) {
		fprintf(answers, "error no keys are loaded\n");
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	char *memory_mb = argc > 1 ? argv[1] : "4096";
	char lcores[32] = "--lcores=0@0";
	char line[4096], command[32], path[4000];

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
		unsigned long number = 0;
		int words = sscanf(line, "%31s", command);
		bool v6 = words == 1 && strchr(command, '6') != NULL;

		if (words != 1)
			continue;
		path[0] = '\0';
		if (strncmp(command, "round", 5) == 0)
			words = sscanf(line, "%*s %lu", &number);
		else
			words = sscanf(line, "%*s %3999s %lu", path, &number);

		if (strcmp(command, "quit") == 0) {
			fprintf(answers, "ok\n");
			break;
		} else if (strcmp(command, "load4") == 0 && words >= 1) {
			load4(path, words == 2 ? (uint32_t)number : 1U << 18);
		} else if (strcmp(command, "load6") == 0 && words >= 1) {
			load6(path, words == 2 ? (uint32_t)number : 1U << 18);
		} else if (strcmp(command, "keys4") == 0 && words >= 1) {
			load_keys4(path);
		} else if (strcmp(command, "keys6") == 0 && words >= 1) {
			load_keys6(path);
		} else if (strcmp(command, "variant4") == 0 && words >= 1) {
			if (ready(false, false))
				variant4(path);
		} else if (strcmp(command, "variant6") == 0 && words >= 1) {
			if (ready(true, false))
				variant6(path);
		} else if (strcmp(command, "round4") == 0 || strcmp(command, "round6") == 0) {
			if (words != 1 || number == 0 || number > BURST_MAX)
				fprintf(answers, "error expected a burst of 1 to %d\n", BURST_MAX);
			else if (ready(v6, true))
				run_round(v6, number);
		} else if (strcmp(command, "check4") == 0 || strcmp(command, "check6") == 0) {
			if (ready(v6, true))
				run_check(v6);
		} else if (strcmp(command, "pages") == 0) {
			pages();
		} else {
			fprintf(answers, "error unknown command: %s", line);
			if (strchr(line, '\n') == NULL)
				fputc('\n', answers);
		}
	}
	rte_fib_free(fib4);
	rte_fib6_free(fib6);
	if (rte_eal_cleanup() != 0)
		fprintf(stderr, "rte_eal_cleanup failed\n");
	return 0;
}
