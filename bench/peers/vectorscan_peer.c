/*
 * A peer of `shadeline bench patterns`: Vectorscan (Debian's libvectorscan, Hyperscan's portable fork) in block
 * mode, behind a line protocol.
 *
 * pkg-config: libhs
 *
 * The parent reads a first line, "ok Vectorscan VERSION", writes one command a line to stdin and reads one answer a line
 * from stdout: "ok …" or "error …".
 *
 *   load FILE            literals, each its length (4 bytes, the machine's order) and its bytes:  ok SECONDS BYTES
 *                        SECONDS: of the compilation; BYTES: of the database
 *   packets FILE SIZE    packets of SIZE bytes, one after the other:  ok COUNT
 *   round                hs_scan of each packet:  ok SECONDS MATCHES
 *                        SECONDS: of this thread's running time
 *
 * The literals are compiled by hs_compile_multi, for this processor, with each byte as \xHH, without start offsets, which
 * is what the automaton reports as well. (hs_compile_lit_multi takes a literal that begins with a zero byte for an empty
 * one.)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <hs.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static hs_database_t *database;
static hs_scratch_t *scratch;
static char *packets;
static size_t packets_bytes, packet_bytes;

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static char *read_file(const char *path, size_t *bytes)
{
	FILE *file = fopen(path, "rb");
	if (!file)
		return NULL;
	fseek(file, 0, SEEK_END);
	*bytes = ftell(file);
	rewind(file);
	char *content = malloc(*bytes + 1);
	if (content && fread(content, 1, *bytes, file) != *bytes) {
		free(content);
		content = NULL;
	}
	fclose(file);
	return content;
}

static void load(const char *path)
{
	size_t bytes, count = 0;
	char *content = read_file(path, &bytes);
	if (!content) {
		printf("error %s: %s\n", path, strerror(errno));
		return;
	}
	const char **expressions = malloc((bytes / 4 + 1) * sizeof *expressions);
	unsigned *flags = malloc((bytes / 4 + 1) * sizeof *flags);
	unsigned *ids = malloc((bytes / 4 + 1) * sizeof *ids);
	char *text = malloc(4 * bytes + bytes / 4 + 1);
	for (size_t at = 0; at + 4 <= bytes; count++) {
		uint32_t length;
		memcpy(&length, content + at, 4);
		at += 4;
		expressions[count] = text;
		flags[count] = 0;
		ids[count] = count;
		for (size_t end = at + length; at < end && at < bytes; at++)
			text += sprintf(text, "\\x%02x", (unsigned char)content[at]);
		*text++ = 0;
	}
	hs_compile_error_t *problem = NULL;
	double begun = seconds();
	hs_error_t result = hs_compile_multi(expressions, flags, ids, count, HS_MODE_BLOCK, NULL,
					     &database, &problem);
	double taken = seconds() - begun;
	size_t size = 0;
	if (result == HS_SUCCESS)
		result = hs_alloc_scratch(database, &scratch);
	if (result == HS_SUCCESS)
		result = hs_database_size(database, &size);
	if (result == HS_SUCCESS)
		printf("ok %f %zu\n", taken, size);
	else
		printf("error %d %s\n", result, problem ? problem->message : "");
	hs_free_compile_error(problem);
	if (count)
		free((char *)expressions[0]);
	free(expressions);
	free(flags);
	free(ids);
	free(content);
}

static int on_match(unsigned id, unsigned long long from, unsigned long long to, unsigned flags,
		    void *count)
{
	(void)id, (void)from, (void)to, (void)flags;
	++*(uint64_t *)count;
	return 0;
}

static void scan_all(void)
{
	if (!database || !packets) {
		printf("error nothing is loaded\n");
		return;
	}
	uint64_t matches = 0;
	double begun = seconds();
	for (size_t at = 0; at + packet_bytes <= packets_bytes; at += packet_bytes) {
		hs_error_t result =
			hs_scan(database, packets + at, packet_bytes, 0, scratch, on_match, &matches);
		if (result != HS_SUCCESS) {
			printf("error hs_scan: %d\n", result);
			return;
		}
	}
	printf("ok %f %" PRIu64 "\n", seconds() - begun, matches);
}

int main(void)
{
	char line[4096], path[4000];
	printf("ok Vectorscan %s\n", hs_version());
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "load %3999s", path) == 1) {
			load(path);
		} else if (sscanf(line, "packets %3999s %zu", path, &packet_bytes) == 2 && packet_bytes) {
			free(packets);
			packets = read_file(path, &packets_bytes);
			if (packets)
				printf("ok %zu\n", packets_bytes / packet_bytes);
			else
				printf("error %s: %s\n", path, strerror(errno));
		} else if (strcmp(line, "round\n") == 0) {
			scan_all();
		} else {
			printf("error unknown command\n");
		}
		fflush(stdout);
	}
	return 0;
}
