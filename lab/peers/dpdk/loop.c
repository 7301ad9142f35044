/*
 * Drives the router of loop.h: 512 frames that stay in the caches, over and over, in bursts. What a
 * device would have done, the generator does: it sets the fields of a received frame and writes its first
 * 64 bytes, destination after destination. It is measured alone as well.
 */
#include "loop.h"

#include <stdio.h>
#include <stdlib.h>

#include <rte_errno.h>
#include <rte_malloc.h>

#include "peer.h"

#define FRAMES 512
#define TRIAL_ROUNDS 7
#define TRIAL_NS 10000000ull

static const unsigned bursts[] = { 32, 64 };

static struct rte_mbuf *frames[FRAMES];
static uint8_t (*heads)[HEAD_BYTES];
static size_t head_count, head_at;
static uint16_t frame_len;
static unsigned next_frame;
static struct router router;

static const struct forward *chosen;
static unsigned chosen_burst;

/* A whole file, in memory on huge pages where there are some; NULL where it cannot be read. */
static void *read_file(const char *file, size_t record, size_t *count, int socket)
{
	FILE *in = fopen(file, "rb");
	void *to = NULL;
	if (in && fseek(in, 0, SEEK_END) == 0) {
		const size_t bytes = (size_t)ftell(in);
		rewind(in);
		*count = bytes / record;
		to = *count ? rte_malloc_socket(NULL, bytes, RTE_CACHE_LINE_SIZE, socket) : NULL;
		if (to && fread(to, 1, bytes, in) != bytes) {
			rte_free(to);
			to = NULL;
		}
	}
	if (in)
		fclose(in);
	return to;
}

/* Received frames: what a driver writes of each, and the bytes that the device would have put there. */
static inline struct rte_mbuf **generate(unsigned n)
{
	struct rte_mbuf **burst = &frames[next_frame];
	next_frame = (next_frame + n) % FRAMES;
	for (unsigned i = 0; i < n; i++) {
		struct rte_mbuf *m = burst[i];
		m->data_off = RTE_PKTMBUF_HEADROOM;
		m->data_len = frame_len;
		m->pkt_len = frame_len;
		m->port = 0;
		m->ol_flags = 0;
		memcpy(rte_pktmbuf_mtod(m, void *), heads[head_at], HEAD_BYTES);
		head_at = head_at + 1 == head_count ? 0 : head_at + 1;
	}
	return burst;
}

/* Bursts for at least `limit` nanoseconds; only their making without `f`. */
static uint64_t spin(const struct forward *f, unsigned n, uint64_t limit, uint64_t *ns, uint64_t *cpu)
{
	if (f && f->choose)
		f->choose();
	const uint64_t cpu_start = now(CLOCK_THREAD_CPUTIME_ID), start = now(CLOCK_MONOTONIC);
	uint64_t packets = 0;
	do {
		/* The clock is asked every 4096 packets. */
		for (unsigned done = 0; done < 4096; done += n) {
			struct rte_mbuf **burst = generate(n);
			if (f)
				f->burst(&router, burst, n);
			else
				rte_compiler_barrier();
		}
		packets += 4096;
		*ns = now(CLOCK_MONOTONIC) - start;
	} while (*ns < limit);
	*cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu_start;
	return packets;
}

/* The fastest lookup and burst: the best of short turns in alternation, as for lookups in main.c. */
static void choose(void)
{
	double best = 0;
	for (unsigned round = 0; round < TRIAL_ROUNDS; round++)
		for (unsigned i = 0; i < engine->forward_count; i++)
			for (unsigned b = 0; b < RTE_DIM(bursts); b++) {
				const struct forward *f = &engine->forwards[i];
				uint64_t ns, cpu;
				if (f->choose && f->choose() != 0)
					continue;
				const double rate =
					(double)spin(f, bursts[b], TRIAL_NS, &ns, &cpu) / (double)cpu;
				if (rate > best) {
					best = rate;
					chosen = f;
					chosen_burst = bursts[b];
				}
			}
}

void loop_leaves(const char *file, int socket)
{
	size_t count;
	struct leave *leaves = read_file(file, sizeof(struct leave), &count, socket);
	for (size_t i = 0; leaves && i < count; i++)
		if (leaves[i].port >= PORTS)
			leaves = NULL;
	if (!leaves || engine->forward_count == 0) {
		reply("{\"error\":\"%s\"}", leaves ? "this algorithm has no loop" : "cannot read the next hops");
		return;
	}
	router.leaves = leaves;
	router.hops = (uint32_t)count;
	reply("{\"ok\":true,\"hops\":%zu}", count);
}

void loop_frames(const char *file, unsigned len, int socket)
{
	if (!frames[0]) {
		struct rte_mempool *pool = rte_pktmbuf_pool_create("frames", FRAMES, 0, 0,
								   RTE_MBUF_DEFAULT_BUF_SIZE, socket);
		if (!pool || rte_pktmbuf_alloc_bulk(pool, frames, FRAMES) != 0) {
			reply("{\"error\":\"no frames: %s\"}", rte_strerror(rte_errno));
			return;
		}
	}
	/* The heads of an earlier stream stay: a few a run. */
	heads = read_file(file, HEAD_BYTES, &head_count, socket);
	if (!heads || !router.leaves || len < 34 || len > HEAD_BYTES) {
		reply("{\"error\":\"cannot read the frames\"}");
		heads = NULL;
		return;
	}
	head_at = next_frame = 0;
	frame_len = (uint16_t)len;
	choose();
	reply("{\"ok\":true,\"frames\":%zu,\"function\":\"%s\",\"burst\":%u}", head_count, chosen->name,
	      chosen_burst);
}

/* Every frame once by what was chosen: what it has become, and by which port it left. */
void loop_forwarded(const char *file)
{
	FILE *to = fopen(file, "wb");
	int failed = !to || !heads;
	head_at = 0;
	if (!failed && chosen->choose)
		chosen->choose();
	for (size_t at = 0; !failed && at < head_count; at += chosen_burst) {
		const unsigned n =
			(unsigned)(head_count - at < chosen_burst ? head_count - at : chosen_burst);
		/* A rest may not go over the end of the frames. */
		next_frame = 0;
		struct rte_mbuf **burst = generate(n);
		uint16_t ports[MOST_BURST];
		memset(ports, NO_PORT & 0xff, sizeof(ports));
		memset(router.sinks, 0, sizeof(router.sinks));
		chosen->burst(&router, burst, n);
		/* What left still stands in the queues. */
		for (unsigned port = 0; port < PORTS; port++)
			for (unsigned i = 0; i < router.sinks[port].packets; i++)
				for (unsigned j = 0; j < n; j++)
					if (router.sinks[port].queue[i] == burst[j])
						ports[j] = (uint16_t)port;
		for (unsigned i = 0; !failed && i < n; i++) {
			failed = fwrite(rte_pktmbuf_mtod(burst[i], void *), HEAD_BYTES, 1, to) != 1 ||
				 fwrite(&ports[i], sizeof(ports[i]), 1, to) != 1;
		}
	}
	head_at = next_frame = 0;
	if (to)
		failed |= fclose(to) != 0;
	reply(failed ? "{\"error\":\"nothing was forwarded\"}" : "{\"ok\":true}");
}

void loop_turn(int whole, uint64_t ms)
{
	if (!heads) {
		reply("{\"error\":\"no frames\"}");
		return;
	}
	uint64_t ns, cpu;
	const uint64_t before = router.sinks[0].packets + router.sinks[1].packets;
	const uint64_t packets = spin(whole ? chosen : NULL, chosen_burst, ms * 1000000, &ns, &cpu);
	const uint64_t left = router.sinks[0].packets + router.sinks[1].packets - before;
	reply("{\"packets\":%lu,\"left\":%lu,\"ns\":%lu,\"cpu_ns\":%lu}", packets, left, ns, cpu);
}
