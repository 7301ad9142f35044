/*
 * A router in one loop, as DPDK's example l3fwd has it: what a burst of frames goes through between a
 * generator and two sinks. The engines of IPv4 put their lookup into it here, so that it is inlined.
 */
#ifndef LOOP_H
#define LOOP_H

#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

/* Bytes that are written of each frame: what the loop can look at. */
#define HEAD_BYTES 64
#define PORTS 2
#define MOST_BURST 64
/* What has no way out. */
#define NO_PORT 0xffff

/* How a packet leaves, by next hop: both addresses as they stand in the frame, and the port. */
struct leave {
	uint8_t macs[2 * RTE_ETHER_ADDR_LEN];
	uint16_t port;
	uint16_t unused;
};

/* Frames on their way out by one port, and what has left. */
struct sink {
	struct rte_mbuf *queue[MOST_BURST];
	unsigned queued;
	uint64_t packets, bytes;
};

struct router {
	const struct leave *leaves;
	uint32_t hops;
	struct sink sinks[PORTS];
	uint64_t dropped;
};

/* Forwards a burst. */
typedef void burst_fn(struct router *router, struct rte_mbuf **frames, unsigned n);

/* A lookup in the loop; see `choose` in peer.h. */
struct forward {
	const char *name;
	burst_fn *burst;
	int (*choose)(void);
};

/* Version, header length, length, checksum: 20 bytes as RFC 1812 5.2.2 has it. */
static inline int is_right(const struct rte_ipv4_hdr *ip, unsigned room)
{
	uint32_t words[5];
	memcpy(words, ip, sizeof(words));
	uint64_t sum = (uint64_t)words[0] + words[1] + words[2] + words[3] + words[4];
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	const unsigned length = rte_be_to_cpu_16(ip->total_length);
	return (ip->version_ihl == 0x45) & (length >= sizeof(*ip)) & (length <= room) &
	       ((sum == 0xffff) | (sum == 0x1fffe)) & (ip->time_to_live > 1);
}

static inline void count(struct sink *sink)
{
	uint64_t bytes = 0;
	for (unsigned i = 0; i < sink->queued; i++)
		bytes += rte_pktmbuf_pkt_len(sink->queue[i]);
	sink->packets += sink->queued;
	sink->bytes += bytes;
	sink->queued = 0;
}

/*
 * The loop: headers, lookup of the whole burst, rewriting, counting. `lookup` answers host-order
 * addresses with hops, 0 for none.
 */
static __rte_always_inline void forward_burst(struct router *router, struct rte_mbuf **frames, unsigned n,
					      void (*lookup)(const uint32_t *, uint32_t *, unsigned))
{
	uint32_t addrs[MOST_BURST], hops[MOST_BURST];
	struct rte_mbuf *good[MOST_BURST];
	unsigned taken = 0;
	for (unsigned i = 0; i < n; i++) {
		struct rte_mbuf *m = frames[i];
		const struct rte_ether_hdr *ether = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
		const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(ether + 1);
		const unsigned room = rte_pktmbuf_data_len(m) - (unsigned)sizeof(*ether);
		good[taken] = m;
		addrs[taken] = rte_be_to_cpu_32(ip->dst_addr);
		taken += (ether->ether_type == RTE_BE16(RTE_ETHER_TYPE_IPV4)) & is_right(ip, room);
	}
	router->dropped += n - taken;
	lookup(addrs, hops, taken);
	for (unsigned i = 0; i < taken; i++) {
		if (unlikely(hops[i] == 0 || hops[i] >= router->hops)) {
			router->dropped++;
			continue;
		}
		const struct leave *leave = &router->leaves[hops[i]];
		struct rte_ether_hdr *ether = rte_pktmbuf_mtod(good[i], struct rte_ether_hdr *);
		struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(ether + 1);
		/* RFC 1624: one less in the upper byte of a word is one more in the sum. */
		const uint32_t sum = ip->hdr_checksum + (uint32_t)RTE_BE16(0x0100);
		ip->hdr_checksum = (uint16_t)(sum + (sum >= 0xffff));
		ip->time_to_live--;
		memcpy(ether, leave->macs, sizeof(leave->macs));
		struct sink *sink = &router->sinks[leave->port];
		sink->queue[sink->queued++] = good[i];
	}
	for (unsigned port = 0; port < PORTS; port++)
		count(&router->sinks[port]);
}

#endif
