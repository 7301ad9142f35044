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

/* 0 for a packet that is what the row says; `fate` is TTL and protocol, or next header and hop limit. */
INLINE u64 difference(u8 *frame, u8 *row)
{
	u64 bits = AT64(frame) ^ AT64(row);

	bits |= AT32(frame + 8) ^ AT32(row + 8);
	/* Its output is the one that leads here. */
	bits |= AT32(frame + 8) ^ CONSTANT(output);
	if (CONSTANT(v6)) {
		bits |= AT64(frame + 38) ^ AT64(row + 16);
		bits |= AT64(frame + 46) ^ AT64(row + 24);
		return bits | (AT16(frame + 20) ^ CONSTANT(fate));
	}
	bits |= AT32(frame + 30) ^ AT32(row + 12);
	bits |= AT16(frame + 22) ^ CONSTANT(fate);
	return bits | (header_sum(frame + 14) ^ 0xffff);
}

int meter(struct xdp_md *context)
{
	u8 *frame = FRAME(context), *row;
	u64 arrived, now;
	u32 number;

	if (!is_long(context, CONSTANT(len)) || AT16(frame + 12) != (CONSTANT(v6) ? IP6 : IP4))
		return XDP_PASS;
	number = __builtin_bswap16(CONSTANT(v6) ? AT16(frame + 54) : AT16(frame + 34));
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
