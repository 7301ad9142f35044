/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Takes the latency and the order of stamped packets, then goes on in the meter (watch.rs). */

#include "program.h"

struct state {
	u64 late, max, last[4];
};

extern struct state state[];
extern char histogram, meter;

INLINE void watch_packet(u8 *frame)
{
	u8 *stamp = frame + CONSTANT(stamp);
	u64 now = time_ns(), sent = AT64(stamp), ns, next, *last, *count;
	u32 bucket, number;

	/* Clocks of two CPUs may differ by nanoseconds. */
	ns = now > sent ? now - sent : 0;
	if (ns > state->max)
		state->max = ns;
	ns >>= CONSTANT(shift);
	bucket = ns < CONSTANT(buckets) ? ns : CONSTANT(buckets) - 1;
	count = map_lookup(&histogram, &bucket);
	if (!count)
		return;
	__sync_fetch_and_add(count, 1);

	/* The last number of its stream, and one more. */
	number = AT32(stamp + 8);
	last = &state->last[number >> 30];
	next = (u64)number + 1;
	if (next > *last)
		*last = next;
	else
		__sync_fetch_and_add(&state->late, 1);
}

int watch(struct xdp_md *context)
{
	/* The router's kernel speaks as well: only packets of IPv4 in a frame of this very length are ours. */
	if (is_long(context, CONSTANT(len)) && AT16(FRAME(context) + 12) == IP4)
		watch_packet(FRAME(context));
	tail_call(context, &meter, 0);
	return XDP_PASS;
}
