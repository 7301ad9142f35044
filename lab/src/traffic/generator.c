/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Turns pages into packets from templates (generator.rs), and sends each to an interface or on to a program. */

#include "program.h"

struct state {
	u32 next, sequence;
	u64 offered, interval, due, first, last;
};

extern struct state state[];
extern char templates, device, target;

/* What a packet ends in: what its template does, a sequence number with its complement, the time with a number. */
enum { TEMPLATE, TAIL, STAMP };

/* How much of what was due is sent late: more at once than a ring holds would be lost. */
enum { CATCH_UP_NS = 100000 };

enum { MADE = -1 };

INLINE void put(u8 *to, u64 left, u64 word)
{
	if (left >= 8) {
		AT64(to) = word;
		return;
	}
	if (left & 4) {
		AT32(to) = word;
		to += 4;
		word >>= 32;
	}
	if (left & 2)
		AT16(to) = word;
}

/* A word of 8 bytes that all templates share is a number of this program, and no cache is shared with it. */
#define WORD(i) \
	if (CONSTANT(len) > 8 * i) \
		put(frame + 8 * i, CONSTANT(len) - 8 * i, CONSTANT(stored) >> i & 1 ? *value++ : CONSTANT(word##i))

INLINE int make(struct xdp_md *context)
{
	u8 *frame = FRAME(context);
	u64 *value, now = 0, due;
	u32 number, sequence;

	if (frame + CONSTANT(len) > FRAME_END(context))
		return XDP_ABORTED;
	if (CONSTANT(ending) == STAMP) {
		now = time_ns();
		due = state->due;
		/* The page goes back; XDP_ABORTED would be traced each time. */
		if (due > now)
			return XDP_DROP;
		if (due < now - CATCH_UP_NS)
			due = now - CATCH_UP_NS;
		state->due = due + state->interval;
		state->last = now;
		if (!state->first)
			state->first = now;
	}

	/* The next template, the first again after the last. */
	number = state->next;
	state->next = number + 1 < CONSTANT(count) ? number + 1 : 0;
	value = map_lookup(&templates, &number);
	if (!value)
		return XDP_ABORTED;
	/* All bytes: the kernel recycles pages as the last receiver left them. */
	WORD(0); WORD(1); WORD(2); WORD(3); WORD(4); WORD(5); WORD(6); WORD(7); WORD(8); WORD(9); WORD(10); WORD(11);

	if (CONSTANT(ending) == STAMP) {
		AT64(frame + CONSTANT(len) - 12) = now;
		AT32(frame + CONSTANT(len) - 4) = state->sequence++;
	}
	if (CONSTANT(ending) == TAIL) {
		sequence = __builtin_bswap32(state->sequence++);
		AT32(frame + CONSTANT(len) - 16) = sequence;
		AT32(frame + CONSTANT(len) - 12) = ~sequence;
	}
	state->offered++;
	return MADE;
}

int generate(struct xdp_md *context)
{
	int made = make(context);

	return made == MADE ? redirect_map(&device, 0, XDP_ABORTED) : made;
}

int feed(struct xdp_md *context)
{
	int made = make(context);

	if (made == MADE)
		tail_call(context, &target, 0);
	return XDP_ABORTED;
}

int nothing(struct xdp_md *context)
{
	return XDP_ABORTED;
}
