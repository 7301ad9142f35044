/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Compares each packet with what must arrive, takes the time now and then, and drops it (meter.rs). */

#include "program.h"

struct state {
	u64 arrived, wrong, first, first_at, last, last_at;
};

extern struct state state[];
extern char expected;

/* Packets between two readings of the clock. */
enum { STRIDE = 4096 };

/* The ten half words of a header add up to 0xffff; folding words does as well. */
INLINE u64 header_sum(u8 *ip)
{
	u64 sum = (u64)AT32(ip) + AT32(ip + 4) + AT32(ip + 8) + AT32(ip + 12) + AT32(ip + 16);

	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/*
 * 0 for a packet that is what the row says; `fate` is TTL and protocol, or next header and hop limit. The IP header of an
 * internal frame comes 4 bytes later, after an adjacency index and a class.
 */
INLINE u64 difference(u8 *frame, u8 *row)
{
	u8 *ip = frame + 14 + CONSTANT(extra);
	u64 bits = AT64(frame) ^ AT64(row);

	bits |= AT32(frame + 8) ^ AT32(row + 8);
	/* Its output is the one that leads here. */
	bits |= AT32(frame + 8) ^ CONSTANT(output);
	if (CONSTANT(extra))
		bits |= AT32(frame + 14) ^ CONSTANT(index);
	if (CONSTANT(v6)) {
		bits |= AT64(ip + 24) ^ AT64(row + 16);
		bits |= AT64(ip + 32) ^ AT64(row + 24);
		return bits | (AT16(ip + 6) ^ CONSTANT(fate));
	}
	bits |= AT32(ip + 16) ^ AT32(row + 12);
	bits |= AT16(ip + 8) ^ CONSTANT(fate);
	return bits | (header_sum(ip) ^ 0xffff);
}

int meter(struct xdp_md *context)
{
	u8 *frame = FRAME(context), *udp = frame + 14 + CONSTANT(extra) + (CONSTANT(v6) ? 40 : 20), *row;
	u64 arrived, now;
	u32 number;

	if (!is_long(context, CONSTANT(len)) || AT16(frame + 12) != CONSTANT(type))
		return XDP_PASS;
	number = __builtin_bswap16(AT16(udp));
	row = map_lookup(&expected, &number);
	if (!row || difference(frame, row))
		__sync_fetch_and_add(&state->wrong, 1);
	arrived = __sync_fetch_and_add(&state->arrived, 1) + 1;
	if (arrived % STRIDE)
		return XDP_DROP;
	now = time_ns();
	state->last = now;
	state->last_at = arrived;
	if (!state->first) {
		state->first = now;
		state->first_at = arrived;
	}
	return XDP_DROP;
}
