/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The program of an internal interface of a cluster: sends a frame on to its egress node, or out of this one. It reads
 * 18 bytes and the first one of the IP packet, and looks nothing up by address. The rules stand in reference.rs; a test
 * compares the two frame by frame.
 *
 *	 0  02, cluster, node that the frame is for (hop target), egress node
 *	 6  02, cluster, sending node, phase, epoch of the egress node
 *	12  EtherType, adjacency index (24 bits), class
 *	18  IP packet
 *
 * What it cannot do whole it leaves untouched to the socket of the queue, and what is no internal frame it drops. Each
 * frame is counted once, by what became of it.
 */

#include "program.h"
#include "link.h"

enum { HEADER = 18, LOCAL = 2, FIRST = 1, SECOND = 2, DATA = 0, PROBE_CLASS = 0xff, TAGGED = 0x0081 };

/* Ports that packets can leave by, as in forward.c. */
enum { PORTS = 4096 };

/* ---- what the loader binds: most are those of forward.c ---- */

extern u64 epochs[];
extern u64 seen[];        /* SEEN words a CPU: frames that ended here, their bytes, frames left */
extern u64 ends[];        /* ENDS words a CPU: frames by what became of them (mod.rs) */
extern u64 links[];       /* a line of 8 words a node (link.h) */
extern u32 outputs[];     /* by adjacency index of this node: its adjacency and 1, or 0 */
extern u32 nodes[];       /* by node: the epoch of its adjacency indices, 8 bits */
extern u32 egress[];
extern u64 adjacencies[];
extern u64 sent[];
extern char devices;
extern char uses;
extern char sockets;      /* AF_XDP sockets by queue */

/* What becomes of a frame, in the order of mod.rs: it is sent, passed to the kernel, left to the socket, or dropped. */
enum {
	TRANSIT, OUTPUT, PROBE, NO_TABLE, STALE, LOOKUP, TOO_BIG, EGRESS, EXTERNAL, MALFORMED, NOT_OURS, PHASE, UNKNOWN_NODE,
	LINK_DOWN, LINK_FULL, REFUSED, NO_SOCKET,
};

enum { ENDS = 32 };

struct use {
	u64 packets, bytes;
};

INLINE void count_sent(u64 cpu, u32 port, u32 bytes)
{
	u64 *count = &sent[(cpu * PORTS + port) * 2];

	count[0] += 1;
	count[1] += bytes;
}

/* For another node: the second phase begins. */
INLINE u32 transit(struct xdp_md *context, u8 *frame, u32 bytes, u64 cpu)
{
	u64 node = __builtin_bswap16(AT16(frame + 4)), now, cost, all, before, word, *link;
	u32 port;

	if (UNLIKELY(frame[10] == SECOND))
		return PHASE;
	if (!CONSTANT(transits))
		return NO_TABLE;
	if (UNLIKELY(node > CONSTANT(links_last)))
		return UNKNOWN_NODE;
	link = &links[node * 8];
	word = *(volatile u64 *)&link[PORT];
	/* Usable and there: the probes may find a link up before it has its port. */
	if (UNLIKELY((word >> 16 & 3) != 3))
		return LINK_DOWN;
	port = word & 0xffff;
	if (UNLIKELY(port >= PORTS || !(egress[port] & 1)))
		return EGRESS;
	cost = *(volatile u64 *)&link[NS_PER_BYTE] * bytes >> 16;
	if (cost) {
		now = time_ns();
		word = *(volatile u64 *)&link[BUSY_TRANSIT];
		before = (long long)(word - now) > 0 ? word - now : 0;
		if (UNLIKELY(before + cost > *(volatile u64 *)&link[LIMIT])) {
			__sync_fetch_and_add(&link[DROPPED_TRANSIT], 1);
			return LINK_FULL;
		}
		/* It never waits behind local packets, which wait behind it. */
		occupy(&link[BUSY_TRANSIT], word, now, cost);
		all = *(volatile u64 *)&link[BUSY_ALL];
		occupy(&link[BUSY_ALL], all, now, cost);
	}
	/* The lowest bits are the answer where no device is. */
	if (UNLIKELY(redirect_map(&devices, port, XDP_DROP) != XDP_REDIRECT))
		return REFUSED;
	__sync_fetch_and_add(&link[BYTES], bytes);
	AT16(frame + 2) = AT16(frame + 4);
	AT16(frame + 8) = __builtin_bswap16(CONSTANT(node));
	frame[10] = SECOND;
	count_sent(cpu, port, bytes);
	return TRANSIT;
}

/* For this node: the adjacency that the ingress node chose, without a lookup. Runs between the two counts of an epoch. */
INLINE u32 leave(struct xdp_md *context, u8 *frame, u32 bytes, u64 cpu, u32 type)
{
	u64 index = AT32(frame + 14), low, high, port;
	u32 key, tag, age;
	struct use *use;

	age = nodes[CONSTANT(node)] - frame[11];
	if (UNLIKELY((age & 0xff) > 1))
		return STALE;
	index = __builtin_bswap32(index) >> 8;
	if (UNLIKELY(index > CONSTANT(outputs_last)))
		return LOOKUP;
	index = *(volatile u32 *)&outputs[index];
	if (UNLIKELY(!index))
		return LOOKUP;
	key = index -= 1;
	index *= 2;
	if (UNLIKELY(index > CONSTANT(adjacencies_last)))
		return LOOKUP;
	/* High first: the MTU decides whether the low half can be used (hops.rs). */
	high = *(volatile u64 *)&adjacencies[index + 1];
	low = *(volatile u64 *)&adjacencies[index];
	if (UNLIKELY(!(high >> 48)))
		return LOOKUP;
	if (UNLIKELY(bytes - HEADER > high >> 48))
		return TOO_BIG;
	port = high >> 32 & 0xffff;
	if (UNLIKELY(port >= PORTS))
		return EGRESS;
	tag = egress[port];
	if (UNLIKELY(!(tag & 1)))
		return EGRESS;
	tag &= 0xffff0000;
	use = map_lookup(&uses, &key);
	if (UNLIKELY(!use))
		return LOOKUP;
	if (UNLIKELY(redirect_map(&devices, port, XDP_DROP) != XDP_REDIRECT))
		return REFUSED;
	if (UNLIKELY(tag)) {
		/* A tagged link header is as long as the internal one. */
		AT32(frame + 12) = TAGGED | tag;
		AT16(frame + 16) = type;
	} else {
		if (UNLIKELY(adjust_head(context, 4)))
			return REFUSED;
		frame = FRAME(context);
		if (frame + 14 > FRAME_END(context))
			return REFUSED;
		AT16(frame + 12) = type;
		bytes -= 4;
	}
	AT32(frame) = low;
	AT32(frame + 4) = low >> 32;
	AT32(frame + 8) = high;
	use->packets += 1;
	use->bytes += bytes;
	count_sent(cpu, port, bytes);
	return OUTPUT;
}

INLINE u32 output(struct xdp_md *context, u8 *frame, u32 bytes, u64 cpu)
{
	u64 *epoch = &epochs[cpu * 8], now = *epoch + 1;
	u32 type, end;

	if (UNLIKELY(frame + HEADER + 1 > FRAME_END(context)))
		return MALFORMED;
	if (frame[HEADER] >> 4 == 4)
		type = IP4;
	else if (frame[HEADER] >> 4 == 6)
		type = IP6;
	else
		return MALFORMED;
	if (!CONSTANT(delivers))
		return NO_TABLE;
	/* As in forward.c: an exchange is a full barrier, nothing is read before the count is seen. */
	__sync_lock_test_and_set(epoch, now);
	end = leave(context, frame, bytes, cpu, type);
	asm volatile("" ::: "memory");
	*(volatile u64 *)epoch = now + 1;
	return end;
}

INLINE u32 decide(struct xdp_md *context, u32 bytes, u64 cpu)
{
	u8 *frame = FRAME(context);
	u32 ours = LOCAL | CONSTANT(cluster) << 8, node = __builtin_bswap16(CONSTANT(node));

	if (UNLIKELY(frame + 14 > FRAME_END(context) || AT16(frame + 12) != CONSTANT(ethertype)))
		return EXTERNAL;
	if (UNLIKELY(frame + HEADER > FRAME_END(context)))
		return MALFORMED;
	if (UNLIKELY(frame[17] != DATA))
		return frame[17] == PROBE_CLASS ? PROBE : MALFORMED;
	if (UNLIKELY(frame[10] != FIRST && frame[10] != SECOND))
		return MALFORMED;
	if (UNLIKELY(AT16(frame) != ours || AT16(frame + 2) != node || AT16(frame + 6) != ours))
		return frame[0] != LOCAL || frame[6] != LOCAL || frame[1] != frame[7] ? MALFORMED : NOT_OURS;
	if (AT16(frame + 4) == node)
		return output(context, frame, bytes, cpu);
	return transit(context, frame, bytes, cpu);
}

int fabric(struct xdp_md *context)
{
	u64 cpu = processor() & CONSTANT(processors), *count = &seen[cpu * SEEN];
	u32 bytes = FRAME_END(context) - FRAME(context), end = decide(context, bytes, cpu);
	int action = XDP_DROP;

	if (LIKELY(end <= OUTPUT)) {
		action = XDP_REDIRECT;
	} else if (end == PROBE) {
		action = XDP_PASS;
	} else if (end < EXTERNAL) {
		/* The kernel has no use for it: without a socket, and by that without the router, it is dropped. */
		action = redirect_map(&sockets, context->rx_queue_index, XDP_DROP);
		if (action != XDP_REDIRECT)
			end = NO_SOCKET;
	}
	if (end <= OUTPUT || end >= EXTERNAL) {
		count[0] += 1;
		count[1] += bytes;
	} else {
		count[2] += 1;
	}
	ends[cpu * ENDS + (end & (ENDS - 1))] += 1;
	return action;
}
