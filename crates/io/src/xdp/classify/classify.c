/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The classifier: forwardable unicast goes to the AF_XDP socket of its queue, all else to the kernel. The rules stand
 * in reference.rs; a test compares the two frame by frame. Beside it, what notes the end of the process and reads the
 * time (presence.rs).
 */

#include "program.h"

enum { LEAVE = -1 };

/* Counters (classify/mod.rs). */
enum { PASSED, REDIRECTED, NO_SOCKET, HELD_BACK };

/* Bits of settings.flags. */
enum { LEFT_V4 = 1, LEFT_V6 = 2, HELD = 4 };

struct settings {
	u32 mac_low;
	/* EtherType whose frames are the router's to whomever they are sent, as in the frame; 0 for none. */
	u16 mac_high, taken;
	u32 max_len, flags;
};

extern struct settings settings[];
extern char sockets, counts, local4, local6;
/* Not 0 once the process ended; its number; the time; from the eighth word on until when each worker is alive. */
extern u64 presence[];
enum { ENDED, PROCESS, NOW, WORKERS = 8 };

/* The forwarding program of the interface. */
extern int forward(struct xdp_md *context);
/* Applies features of the interface to a frame for the kernel: XDP_DROP or XDP_PASS. */
extern int guard(struct xdp_md *context, u32 tag);
/* bpf_xdp_metadata_rx_vlan_tag: 0 where the device took a tag off. */
extern int vlan_tag(const struct xdp_md *context, u16 *protocol, u16 *tag);

INLINE int has_hidden_tag(struct xdp_md *context)
{
	u16 protocol = 0, tag = 0;
	return CONSTANT(reads_tags) && vlan_tag(context, &protocol, &tag) == 0;
}

/* A tag that is not in the frame, with bit 16; 0 where there is none. */
INLINE u32 hidden_tag(struct xdp_md *context)
{
	u16 protocol = 0, tag = 0;
	return CONSTANT(reads_tags) && vlan_tag(context, &protocol, &tag) == 0 ? 1 << 16 | tag : 0;
}

INLINE int end(int action, u32 counter)
{
	u64 *count = map_lookup(&counts, &counter);
	/* No other program counts on this CPU meanwhile: no atomic addition. */
	if (count)
		*count += 1;
	return action;
}

/* Whether the rules leave the frame to the kernel. */
INLINE int is_kernels(struct xdp_md *context)
{
	void *frame = (void *)(u64)context->data, *past = (void *)(u64)context->data_end;
	/* Too short for Ethernet and IPv4, or too long for a frame of the pool. */
	if (frame + 34 > past || (u64)(past - frame) > settings->max_len)
		return 1;
	if (settings->taken && *(u16 *)(frame + 12) == settings->taken)
		return 0;
	if (*(u32 *)frame != settings->mac_low || *(u16 *)(frame + 4) != settings->mac_high)
		return 1;
	if (*(u16 *)(frame + 12) == IP4) {
		u32 to = *(u32 *)(frame + 30);
		u8 first = to;
		if (settings->flags & LEFT_V4)
			return 1;
		/* 0/8, 127/8, 224/4 and 255.255.255.255. */
		if (first == 0 || first == 127 || (first & 0xf0) == 224 || to == 0xffffffff)
			return 1;
		return map_lookup(&local4, &to) != 0;
	}
	if (*(u16 *)(frame + 12) == IP6) {
		u64 to[2];
		if ((settings->flags & LEFT_V6) || frame + 54 > past)
			return 1;
		to[0] = *(u64 *)(frame + 38);
		to[1] = *(u64 *)(frame + 46);
		/* ff00::/8, fe80::/10, :: and ::1. */
		if ((u8)to[0] == 0xff || (to[0] & 0xc0ff) == 0x80fe)
			return 1;
		if (to[0] == 0 && (to[1] == 0 || to[1] == 1ull << 56))
			return 1;
		return map_lookup(&local6, to) != 0;
	}
	return 1;
}

/* Whether the worker that owns the queue is alive. */
INLINE int is_worker_alive(u32 queue)
{
	u64 workers = CONSTANT(workers), worker = queue;
	if (!workers)
		return 1;
	worker = workers & (workers - 1) ? worker % workers : worker & (workers - 1);
	/* The verifier learns nothing from a remainder, and the compiler must not know that it is below. */
	asm("" : "+r"(worker));
	return worker < workers && coarse_time_ns() <= presence[WORKERS + worker];
}

/* A frame for the kernel. Without a guard each place has a return of its own: the common path has no jump more then. */
#define PASS \
	do { \
		if (guards) \
			goto pass; \
		return end(XDP_PASS, PASSED); \
	} while (0)

INLINE int decide(struct xdp_md *context, int guards)
{
	u32 queue;
	if (CONSTANT(forwards)) {
		int action;
		if (has_hidden_tag(context))
			PASS;
		action = forward(context);
		if (guards && action == XDP_PASS)
			goto pass;
		if (action != LEAVE)
			return action;
	}
	if (is_kernels(context))
		PASS;
	if (!CONSTANT(forwards) && has_hidden_tag(context))
		PASS;
	queue = context->rx_queue_index;
	if (presence[ENDED] == 0 && is_worker_alive(queue) && redirect_map(&sockets, queue, XDP_PASS) == XDP_REDIRECT)
		return end(XDP_REDIRECT, REDIRECTED);
	if (settings->flags & HELD)
		return end(XDP_DROP, HELD_BACK);
	return end(XDP_PASS, NO_SOCKET);
pass:
	return guard(context, hidden_tag(context)) == XDP_DROP ? XDP_DROP : end(XDP_PASS, PASSED);
}

int classify(struct xdp_md *context)
{
	return decide(context, 0);
}

/* The classifier of an interface with features for packets to the router itself. */
int classify_and_guard(struct xdp_md *context)
{
	return decide(context, 1);
}

/* All frames go to the socket of their queue. */
int take_all(struct xdp_md *context)
{
	return redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
}

/* Stores the number of the process that runs it. */
int remember(void *context)
{
	presence[PROCESS] = process() >> 32;
	return 0;
}

/* Sets the first word where the first thread of that process ends: the others may end before it. */
int ending(void *context)
{
	u64 now = process();
	if (now >> 32 == presence[PROCESS] && (u32)now == presence[PROCESS])
		presence[ENDED] = 1;
	return 0;
}

/* Stores the time as programs read it. */
int read_clock(struct xdp_md *context)
{
	presence[NOW] = coarse_time_ns();
	return XDP_DROP;
}
