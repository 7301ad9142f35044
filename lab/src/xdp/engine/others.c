/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Forwarders that others use in XDP, for one family at a time, which spares them a branch. What is not to be forwarded
 * passes to the kernel.
 */

#include "program.h"

extern char ports, routes;

/* A whole header of the family, without options, with hops left. */
INLINE int is_forwardable(struct xdp_md *context)
{
	u8 *frame = FRAME(context), *end = FRAME_END(context);

	if (CONSTANT(v6))
		return frame + 54 <= end && AT16(frame + 12) == IP6 && frame[21] > 1;
	return frame + 34 <= end && AT16(frame + 12) == IP4 && frame[14] == 0x45 && frame[22] > 1;
}

/* One hop less, and the header checksum to it (RFC 1141): what overflows comes in below. */
INLINE void age(u8 *frame)
{
	u32 sum;

	if (CONSTANT(v6)) {
		frame[21] -= 1;
		return;
	}
	sum = AT16(frame + 24) + 1;
	AT16(frame + 24) = sum + ((sum + 1) >> 16);
	frame[22] -= 1;
}

/* Hands all to the kernel. */
int pass(struct xdp_md *context)
{
	return XDP_PASS;
}

/* Sends each packet as it is. */
int bare(struct xdp_md *context)
{
	return redirect_map(&ports, CONSTANT(link), XDP_ABORTED);
}

/* struct bpf_fib_lookup */
struct fib_lookup {
	u8 family, protocol;
	u16 ports[2], len;
	u32 link, flow, source[4], destination[4];
	u16 vlan[2], from[3], to[3];
};

/* AF_INET and AF_INET6 of Linux. */
enum { INET = 2, INET6 = 10 };

int helper(struct xdp_md *context)
{
	u8 *frame = FRAME(context);
	struct fib_lookup request = { 0 };

	if (!is_forwardable(context))
		return XDP_PASS;
	request.link = context->ingress_ifindex;
	/* What the kernel calls `tot_len` is compared with the MTU; of IPv6 it is the payload's. */
	if (CONSTANT(v6)) {
		request.family = INET6;
		request.protocol = frame[20];
		request.len = __builtin_bswap16(AT16(frame + 18));
		AT64(request.source) = AT64(frame + 22);
		AT64(request.source + 2) = AT64(frame + 30);
		AT64(request.destination) = AT64(frame + 38);
		AT64(request.destination + 2) = AT64(frame + 46);
	} else {
		request.family = INET;
		request.protocol = frame[23];
		request.len = __builtin_bswap16(AT16(frame + 16));
		request.source[0] = AT32(frame + 26);
		request.destination[0] = AT32(frame + 30);
	}
	if (fib_lookup(context, &request, sizeof(request), 0))
		return XDP_PASS;
	age(frame);
	AT16(frame) = request.to[0];
	AT32(frame + 2) = AT32(request.to + 1);
	AT32(frame + 6) = AT32(request.from);
	AT16(frame + 10) = request.from[2];
	return redirect_map(&ports, request.link, XDP_ABORTED);
}

/* The next hop's MACs, and the number of the link out. */
struct route {
	u64 macs;
	u32 more_macs, link;
};

/* The kernel reads it from `bits` on; addresses on the stack must be aligned. */
struct key {
	u32 unused, bits;
	u64 addr[2];
};

int trie(struct xdp_md *context)
{
	u8 *frame = FRAME(context);
	struct route *route;
	struct key key;

	if (!is_forwardable(context))
		return XDP_PASS;
	if (CONSTANT(v6)) {
		key.bits = 128;
		key.addr[0] = AT64(frame + 38);
		key.addr[1] = AT64(frame + 46);
	} else {
		key.bits = 32;
		AT32(key.addr) = AT32(frame + 30);
	}
	route = map_lookup(&routes, &key.bits);
	if (!route)
		return XDP_PASS;
	age(frame);
	AT64(frame) = route->macs;
	AT32(frame + 8) = route->more_macs;
	return redirect_map(&ports, route->link, XDP_ABORTED);
}
