/*
 * A peer of `shadeline bench streams`: libnids behind a line protocol.   link: -lnids -lpcap
 *
 * The parent writes one command a line to stdin and reads one answer a line from stdout: "ok …" or
 * "error …". What libnids warns of is not printed.
 *
 *   load PATH                        reads all frames of a capture into memory:  ok FRAMES
 *   round CONNECTIONS CHECKSUMS      one pass over them:  ok SECONDS STREAMS CLIENT SERVER
 *   check CONNECTIONS CHECKSUMS      the same:  ok HASH STREAMS CLIENT SERVER
 *   quit
 *
 * CONNECTIONS: how many the table of libnids is made for. CHECKSUMS: 1 verifies those of TCP, as libnids does
 * by default; 0 does not. SECONDS: of this thread's running time, for the frames alone, not for making and
 * freeing the table. STREAMS: connections whose handshake was seen; CLIENT, SERVER: bytes in order that came
 * from their clients and servers.
 *
 * HASH does not depend on how streams are cut into pieces or connections interleaved: the wrapping sum, over
 * all bytes, of byte * (offset in its stream + 1) * k. k of a client's stream is splitmix64 of
 * addresses + ports, odd; of the server's, k rotated by 32, odd. addresses is client << 32 | server,
 * ports is (client << 16 | server) * 0x9e3779b97f4a7c15.
 *
 * Detection of port scans is off, for it would only take time. Frames begin at multiples of 64 bytes on ordinary
 * pages, as those of the parent do.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <nids.h>

static FILE *answers; /* the parent's end; stdout itself is stderr */

struct frame {
	struct pcap_pkthdr header;
	size_t at;
};

static struct frame *frames;
static size_t frames_len, frames_room;
static uint8_t *bytes;
static size_t bytes_len, bytes_room;
static int link_type;

static uint64_t streams, from_client, from_server, hash;
static bool hashes;

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

static uint64_t splitmix(uint64_t z)
{
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* `half`: what arrives at one end. */
static void take(const struct tcp_stream *stream, const struct half_stream *half, bool to_server)
{
	const uint8_t *data = (const uint8_t *)half->data + (half->count - half->offset - half->count_new);
	uint64_t offset = (uint64_t)(half->count - half->count_new), sum = 0, k;

	*(to_server ? &from_client : &from_server) += (uint64_t)half->count_new;
	if (!hashes)
		return;
	k = (uint64_t)ntohl(stream->addr.saddr) << 32 | ntohl(stream->addr.daddr);
	k += ((uint64_t)stream->addr.source << 16 | stream->addr.dest) * GOLDEN;
	k = splitmix(k);
	if (!to_server)
		k = k << 32 | k >> 32;
	for (int i = 0; i < half->count_new; i++)
		sum += data[i] * (offset + (uint64_t)i + 1);
	hash += sum * (k | 1);
}

static void heard(struct tcp_stream *stream, void **unused)
{
	(void)unused;
	if (stream->nids_state == NIDS_JUST_EST) {
		stream->client.collect++;
		stream->server.collect++;
		streams++;
	} else if (stream->nids_state == NIDS_DATA) {
		if (stream->server.count_new > 0)
			take(stream, &stream->server, true);
		if (stream->client.count_new > 0)
			take(stream, &stream->client, false);
	}
}

static void quiet(int type, int code, void *header, void *data)
{
	(void)type;
	(void)code;
	(void)header;
	(void)data;
}

static bool grow(size_t more)
{
	size_t room = bytes_room == 0 ? (size_t)64 << 20 : bytes_room;

	while (room < bytes_len + more)
		room *= 2;
	if (room != bytes_room) {
		void *grown = bytes_room == 0 ? mmap(NULL, room, PROT_READ | PROT_WRITE,
						     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
					      : mremap(bytes, bytes_room, room, MREMAP_MAYMOVE);
		if (grown == MAP_FAILED)
			return false;
		bytes = grown;
		bytes_room = room;
	}
	if (frames_len == frames_room) {
		size_t count = frames_room == 0 ? 1 << 16 : 2 * frames_room;
		struct frame *grown = realloc(frames, count * sizeof(*grown));
		if (grown == NULL)
			return false;
		frames = grown;
		frames_room = count;
	}
	return true;
}

static void load(const char *path)
{
	char error[PCAP_ERRBUF_SIZE];
	pcap_t *capture = pcap_open_offline(path, error);
	struct pcap_pkthdr *header;
	const u_char *data;
	int rc;

	frames_len = 0;
	bytes_len = 0;
	if (capture == NULL) {
		fprintf(answers, "error %s\n", error);
		return;
	}
	link_type = pcap_datalink(capture);
	while ((rc = pcap_next_ex(capture, &header, &data)) == 1) {
		size_t cell = ((size_t)header->caplen + 63) & ~(size_t)63;

		if (!grow(cell)) {
			rc = PCAP_ERROR;
			break;
		}
		memcpy(bytes + bytes_len, data, header->caplen);
		frames[frames_len++] = (struct frame){ *header, bytes_len };
		bytes_len += cell;
	}
	pcap_close(capture);
	if (rc != PCAP_ERROR_BREAK) {
		frames_len = 0;
		fprintf(answers, "error %s: not read, or no memory\n", path);
		return;
	}
	fprintf(answers, "ok %zu\n", frames_len);
}

/* Time that this thread ran: what other programs on the machine take does not count. */
static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void run_round(size_t connections, bool checksums, bool with_hash)
{
	struct nids_chksum_ctl control = { .action = checksums ? NIDS_DO_CHKSUM : NIDS_DONT_CHKSUM };
	double start, seconds;

	hashes = with_hash;
	streams = from_client = from_server = hash = 0;
	nids_params.device = NULL;
	nids_params.filename = NULL;
	nids_params.pcap_desc = pcap_open_dead(link_type, 65535);
	nids_params.pcap_filter = NULL;
	nids_params.scan_num_hosts = 0;
	nids_params.syslog = quiet;
	nids_params.multiproc = 0;
	/* It evicts streams above three quarters. */
	nids_params.n_tcp_streams = (int)(2 * connections + 64);
	if (!nids_init()) {
		fprintf(answers, "error nids_init: %s\n", nids_errbuf);
		return;
	}
	nids_register_chksum_ctl(&control, 1);
	nids_register_tcp(heard);
	start = now();
	for (size_t i = 0; i < frames_len; i++)
		nids_pcap_handler(NULL, &frames[i].header, bytes + frames[i].at);
	seconds = now() - start;
	nids_unregister_tcp(heard);
	nids_exit();
	if (with_hash)
		fprintf(answers, "ok %016" PRIx64, hash);
	else
		fprintf(answers, "ok %.9f", seconds);
	fprintf(answers, " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", streams, from_client, from_server);
}

int main(void)
{
	char line[4352], command[32], path[4097];
	int own = dup(STDOUT_FILENO);

	answers = own < 0 ? NULL : fdopen(own, "w");
	if (answers == NULL || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return 1;
	setvbuf(answers, NULL, _IOLBF, 0);
	fprintf(answers, "ok libnids %d.%d\n", NIDS_MAJOR, NIDS_MINOR);

	while (fgets(line, sizeof(line), stdin) != NULL) {
		size_t connections = 0;
		unsigned int checksums = 0;

		if (sscanf(line, "%31s", command) != 1)
			continue;
		if (strcmp(command, "quit") == 0) {
			fprintf(answers, "ok\n");
			break;
		} else if (sscanf(line, "load %4096s", path) == 1) {
			load(path);
		} else if (sscanf(line, "%*s %zu %u", &connections, &checksums) == 2 && connections > 0 &&
			   connections < 1 << 28 && frames_len > 0 &&
			   (strcmp(command, "round") == 0 || strcmp(command, "check") == 0)) {
			run_round(connections, checksums != 0, command[0] == 'c');
		} else {
			line[strcspn(line, "\n")] = '\0';
			fprintf(answers, "error not understood, or too early: %s\n", line);
		}
	}
	return 0;
}
