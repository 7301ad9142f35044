/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Counts the packets of a generator, lets a random share of them through to a socket, and drops the rest (sink.rs). */

#include "program.h"

extern char counts, sockets;
enum { ARRIVED, SAMPLED };

INLINE void count(u32 index)
{
	u64 *count = map_lookup(&counts, &index);

	if (count)
		*count += 1;
}

int sink(struct xdp_md *context)
{
	u8 *frame = FRAME(context);
	u16 type;

	/* UDP in a frame of this very length. */
	if (!is_long(context, CONSTANT(len)))
		return XDP_PASS;
	type = AT16(frame + 12);
	if (!(type == IP4 && frame[23] == UDP) && !(type == IP6 && frame[20] == UDP))
		return XDP_PASS;
	count(ARRIVED);
	if (random() & CONSTANT(others))
		return XDP_DROP;
	if (redirect_map(&sockets, context->rx_queue_index, XDP_DROP) != XDP_REDIRECT)
		return XDP_DROP;
	count(SAMPLED);
	return XDP_REDIRECT;
}
