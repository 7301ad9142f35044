/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Forwarding in the driver: looks a packet up in the router's own tables, which lie in maps that both
 * sides read, and sends it on. What it cannot do whole it leaves untouched, and answers LEAVE: then the
 * packet takes the path that it would take without this program (../classify/classify.c).
 *
 * A branch on a form that a table does not have costs nothing: forms are numbers that the loader puts in (program.h).
 *
 * Loads are as wide as the fields; a packet's header begins 2 bytes off a word, which the machines that
 * we serve do not mind. Numbers of the network stay in its order where they are only compared.
 */

#include "program.h"
#include "link.h"

enum { TAGGED = 0x0081, SERVICE_TAGGED = 0xa888, LEAVE = -1 };

/* Addresses that a program for proofs looks up at a time (query.rs). */
enum { MOST_ADDRESSES = 64 };

/* Ports that packets can leave by. */
enum { PORTS = 4096 };
/* The first word of `seen` about dropped frames: BLACKHOLE and the reasons after it, at most 8. */
enum { DROPPED = 8 };

/* ---- what the loader binds ---- */

extern u64 epochs[];      /* 8 words a CPU; the first counts: odd while the program runs there */
extern u64 seen[];        /* SEEN words a CPU: frames that ended here, their bytes, frames left, from DISTANCE on four words
                             about samples, and from DROPPED on dropped frames by reason; so for this interface, then for
                             each VLAN interface on it (received.rs) */
extern u64 alive[];       /* the second: until which tick the daemon is believed to be there (heartbeat.rs) */
extern u64 own4[], own6[]; /* filters of 4,096 bits: addresses that may be the host's own (local.rs) */
extern char local4, local6; /* hash maps: those that are, in the network's order */
extern u32 egress[];     /* by port: bit 0 where programs may send, above bit 15 the tag to write, if any */
extern u64 vlans[];       /* by VLAN id: the interface's MAC, above bit 47 its place in `seen`; 0 where there is none */
extern u64 settings[];    /* the classifier's: the first 6 bytes are the MAC of this interface */
extern u64 hops[];        /* hops.rs */
extern u32 slots[];
extern u64 adjacencies[];
extern u16 v4_direct16[]; /* bitmap_chunks.rs, entries of 16 bits or of 32 */
extern u32 v4_direct32[];
extern u32 v4_bases[];
extern u64 v4_heap[];
extern u64 v4_tails[];
extern u32 v6_direct[];   /* bitmap_trie.rs */
extern u64 v6_heap[];
extern u16 s4_direct16[]; /* the same of the lists of sources, whose answers are masks of lists */
extern u32 s4_direct32[];
extern u32 s4_bases[];
extern u64 s4_heap[];
extern u64 s4_tails[];
extern u32 s6_direct[];
extern u64 s6_heap[];
extern u64 ingress[];     /* by place in `seen`: the features of the interface (features.rs) */
extern u64 defaults[];    /* how many, then the next hops of default routes, at most DEFAULTS */
extern u8 verdicts[];     /* by mask of lists */
extern u64 hits[];        /* 4 words by CPU and list, LISTS of them: packets, bytes, dropped packets */
extern u32 acl[];         /* rows of 4 words: for each access list and family where its trees are, then these
                             (crates/packet/src/feature/acl/kernel.rs) */
extern u64 acl_hits[];    /* by CPU and rule: packets, bytes */
extern u32 acl_scratch[]; /* SCRATCH words a CPU: the key of a packet, the rules that count it, and their number */
extern u64 sample[];      /* RECORD bytes a CPU: the sample of the packet in progress (samples.rs) */
extern char ring;         /* ring buffer of samples */
extern char devices;      /* map of devices by port */
extern char uses;         /* per CPU: packets and bytes by adjacency */
extern u64 sent[];        /* frames and bytes by egress port, PORTS of them a CPU (sent.rs) */
extern char left;         /* per CPU: packets left alone, by reason */
extern u64 links[];       /* of a cluster node: the link to each node (link.h) */
extern u32 nodes[];       /* by node: the epoch of its adjacency indices, 8 bits */
extern u64 ends[];        /* ENDS words a CPU, the last for packets that were sent into the cluster (fabric/mod.rs) */

/* Why a packet was left alone or dropped: indices of `left`, in the order of reasons.rs. */
enum {
	NOT_OURS, SHORT, TYPE, HEADER, ADDRESS, EXPIRED, OPTIONS, NO_TABLE, VERDICT, TOO_BIG, UNRESOLVED, EGRESS,
	QUOTED, PARTIAL_CHECKSUM, DAMAGED, AWAY, TAG, HEADROOM, FEATURE, HOST, BLACKHOLE, REFUSED, SOURCE_FILTER, URPF,
	ACL, LINK_FULL,
};

/* What a step answers for a packet that it does not send. */
#define LEFT(reason) (-1 - (reason))

/* The end of such a packet: counted, and left to others unless it is to be dropped. `seen` is where who received it counts. */
INLINE int give_up(int answer, u64 *seen)
{
	u32 reason = LEFT(answer);
	u64 *count = map_lookup(&left, &reason);

	if (count)
		*count += 1;
	if (reason >= BLACKHOLE)
		seen[DROPPED + ((reason - BLACKHOLE) & 7)] += 1;
	/* The sockets of a daemon that is not there are no place for a packet, nor is the graph for the host's. */
	if (reason == AWAY || reason == HOST)
		return XDP_PASS;
	return reason >= BLACKHOLE ? XDP_DROP : LEAVE;
}

/* ---- lookup ---- */

/* The verifier takes it to be at most 255: maps are longer than what is in use by more than that. */
INLINE u32 ones(u64 x)
{
	x -= (x >> 1) & 0x5555555555555555ULL;
	x = (x & 0x3333333333333333ULL) + ((x >> 2) & 0x3333333333333333ULL);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (x * 0x0101010101010101ULL) >> 56;
}

/* Forms of an IPv4 table: entries and results of 16 or 32 bits; 0 is none that can be read. */
enum { NONE4, NEAR, FAR, WIDE };

#define LOOKUP4(name, t) \
INLINE u32 name(u32 d) \
{ \
	u64 form = CONSTANT(t##_form), place, at, before; \
	u32 rank, result; \
\
	if (form == NEAR) { \
		place = t##_direct16[d >> 14]; \
		if (place >= CONSTANT(t##_sink_end)) \
			place += t##_bases[d >> 26]; \
	} else { \
		place = t##_direct32[d >> 14]; \
	} \
	if (UNLIKELY(place > CONSTANT(t##_heap_last))) \
		return 0; \
	rank = ones(t##_heap[place] << (63 - ((d >> 8) & 63))); \
	if (form == WIDE) { \
		result = ((u32 *)&t##_heap[place])[1 + rank]; \
		if (LIKELY(!(result >> 31))) \
			return result; \
		at = (u64)(result & 0x7fffffff) * 8; \
	} else { \
		result = ((u16 *)&t##_heap[place])[3 + rank]; \
		if (LIKELY(!(result >> 15))) \
			return result; \
		at = (u64)(result & 0x7fff) * 8; \
	} \
	/* A /24 with longer prefixes: which of the four words, and how many runs begin before it. */ \
	if (UNLIKELY(at > CONSTANT(t##_tails_last))) \
		return 0; \
	before = (t##_tails[at + 4] >> ((d >> 6 & 3) * 16)) & 0x1ff; \
	rank = ones(t##_tails[at + (d >> 6 & 3)] << (63 - (d & 63))) + before; \
	if (form == WIDE) \
		return ((u32 *)&t##_tails[at])[9 + rank]; \
	return ((u16 *)&t##_tails[at])[19 + rank]; \
}

LOOKUP4(lookup4, v4)
LOOKUP4(lists4, s4)

/* Entries of the direct table for 2000::/3; the others of eighths of all addresses come behind them. */
#define GLOBAL6 (1 << 18)

#define LOOKUP6(name, t) \
INLINE u32 name(u64 high, u64 low) \
{ \
	u32 entry, top = high >> 61, first = top == 1 ? 21 : 3; \
	u64 at; \
\
	entry = top == 1 ? t##_direct[high >> 43 & (GLOBAL6 - 1)] : t##_direct[GLOBAL6 + top]; \
	high = high << first | low >> (64 - first); \
	low <<= first; \
	/* 6 bits a chunk: at most 21 from bit 3 on. */ \
	_Pragma("clang loop unroll(disable)") \
	for (int i = 0; i < 21; i++) { \
		if (!(entry >> 31)) \
			break; \
		at = entry & 0x7fffffff; \
		if (UNLIKELY(at > CONSTANT(t##_heap_last))) \
			return 0; \
		entry = ((u32 *)&t##_heap[at])[1 + ones(t##_heap[at] << (63 - (high >> 58)))]; \
		high = high << 6 | low >> 58; \
		low <<= 6; \
	} \
	/* Nothing longer: the next hop of ::/0, which stands where 2000::/3 would among the eighths. */ \
	return entry ? entry : t##_direct[GLOBAL6 + 1]; \
}

LOOKUP6(lookup6, v6)
LOOKUP6(lists6, s6)

/* ---- flows: as in flow.rs ---- */

INLINE u64 fold(u64 state, u64 word)
{
	state = (state ^ word) * 0x9e3779b97f4a7c15ULL;
	return state ^ (state >> 32);
}

INLINE u32 finish(u64 state)
{
	state *= 0xbf58476d1ce4e5b9ULL;
	state ^= state >> 29;
	state *= 0x94d049bb133111ebULL;
	return state ^ (state >> 32);
}

/* Protocols whose headers begin with two ports: TCP, UDP, DCCP, SCTP, UDP-Lite. */
INLINE int has_ports(u32 protocol)
{
	return protocol == 6 || protocol == 17 || protocol == 33 || protocol == 132 || protocol == 136;
}

/* Protocol and ports as one word. `transport` begins the header, of which `len` bytes belong to it. */
INLINE u64 transport_word(u32 protocol, u8 *transport, u32 len, u8 *end)
{
	u64 ports = 0;

	if (has_ports(protocol) && len >= 4 && transport + 4 <= end)
		ports = __builtin_bswap32(*(u32 *)transport);
	return ports << 8 | protocol;
}

/* ---- the adjacency, and what leaves by it ---- */

enum { ADJACENCY = 1, GLEAN = 2, LOCAL = 3, DROP = 4 };

struct use {
	u64 packets, bytes;
};

struct adjacency {
	u64 low, high; /* the adjacency: 12 bytes of addresses, the port, the MTU */
	struct use *use;
	u64 *sent; /* counts of the egress port on this CPU: frames, bytes */
	u32 tag; /* to write, as the upper half of a word; 0 is none */
};

/*
 * The adjacency of the forwarding action in the low half of `word`, for a packet of `len` bytes. Returns 0 and fills `to`, or
 * what becomes of the packet.
 */
INLINE int find_adjacency(u64 word, u32 len, u64 cpu, struct adjacency *to)
{
	u32 leg = word, index = leg & 0x0fffffff;
	u64 at = (u64)index * 2;

	if (UNLIKELY(leg >> 28 != ADJACENCY))
		return leg >> 28 == DROP ? LEFT(BLACKHOLE) : leg >> 28 == LOCAL ? LEFT(HOST) : LEFT(VERDICT);
	if (UNLIKELY(at > CONSTANT(adjacencies_last)))
		return LEFT(DAMAGED);
	/* High first: the MTU decides whether the low half can be used (hops.rs). */
	to->high = *(volatile u64 *)&adjacencies[at + 1];
	to->low = *(volatile u64 *)&adjacencies[at];
	if (UNLIKELY(to->high >> 48 == 0))
		return LEFT(UNRESOLVED);
	if (UNLIKELY(len > to->high >> 48))
		return LEFT(TOO_BIG);
	at = to->high >> 32 & 0xffff;
	if (UNLIKELY(at > CONSTANT(egress_last)))
		return LEFT(EGRESS);
	to->tag = egress[at];
	if (UNLIKELY(!(to->tag & 1)))
		return LEFT(EGRESS);
	/* What is never asked for costs nothing. */
	to->tag = CONSTANT(tags) ? to->tag & 0xffff0000 : 0;
	to->sent = &sent[(cpu * PORTS + at) * 2];
	to->use = map_lookup(&uses, &index);
	return LIKELY(to->use) ? 0 : LEFT(DAMAGED);
}

/* The word of a slot of a group. */
INLINE u64 slot_of(u64 word, u32 hash)
{
	u64 slot = (word & 0x0fffffff) + (((u64)hash * (word >> 32)) >> 32);

	return slot > CONSTANT(slots_last) ? 0 : *(volatile u32 *)&slots[slot];
}

/*
 * Makes room for a tag, or takes that of one away: only the frame's beginning moves, since what a tag stands
 * before stays where it is. Answers where the IP header is then; 0 where the driver leaves no room.
 */
INLINE u8 *move_head(struct xdp_md *context, u8 *ip, u32 tagged, u32 tag)
{
	u8 *data;

	if (!tagged == !tag)
		return ip;
	if (adjust_head(context, tag ? -4 : 4))
		return 0;
	data = (u8 *)(u64)context->data;
	ip = data + (tag ? 18 : 14);
	return ip + 20 > (u8 *)(u64)context->data_end ? 0 : ip;
}

/* Writes the link header before a packet of `len` bytes, cuts padding off, sends, and counts. */
INLINE int leave_by(struct xdp_md *context, u8 *ip, struct adjacency *to, u32 len, u32 padding)
{
	u8 *link = ip - 14;
	u32 frame = len + 14;

	if (CONSTANT(tags) && UNLIKELY(to->tag)) {
		link = ip - 18;
		frame += 4;
		/* Priority 0, as the kernel writes unless it is configured otherwise. */
		*(u32 *)(link + 12) = TAGGED | to->tag;
	}
	*(u32 *)link = to->low;
	*(u32 *)(link + 4) = to->low >> 32;
	*(u32 *)(link + 8) = to->high;
	if (UNLIKELY(padding))
		adjust_tail(context, -(int)padding);
	/* The lowest bits are the answer where no device is. */
	if (UNLIKELY(redirect_map(&devices, to->high >> 32 & 0xffff, XDP_DROP) != XDP_REDIRECT))
		return LEFT(REFUSED);
	to->use->packets += 1;
	to->use->bytes += frame;
	to->sent[0] += 1;
	to->sent[1] += frame;
	return XDP_REDIRECT;
}

/* ---- into a cluster: an adjacency of the fabric interface names one of another node (crates/cluster/src/frame.rs) ---- */

/* The internal header, which takes the place of the link header; the first byte of its addresses; its second phase. */
enum { INTERNAL_HEADER = 18, INTERNAL = 2, SECOND = 2 };

enum { ENDS = 32 };

/*
 * The link to the node that an adjacency of the fabric interface names, for a packet of `len` bytes with the forwarding
 * action `word`. Returns 0 and fills `to`, or why the packet is the graph's, which knows detours.
 */
INLINE int find_link(u64 word, u32 len, u64 cpu, struct adjacency *to, u64 **link)
{
	u64 node = __builtin_bswap16(to->low >> 32 & 0xffff), port;
	u32 index = word & 0x0fffffff;

	if ((to->high >> 32 & 0xffff) != CONSTANT(fabric_port) || (to->low & 0xff) != INTERNAL)
		return LEFT(EGRESS);
	if (UNLIKELY(node == CONSTANT(node) || node > CONSTANT(nodes_last)))
		return LEFT(EGRESS);
	if (UNLIKELY(len > CONSTANT(internal_longest)))
		return LEFT(TOO_BIG);
	*link = &links[node * 8];
	port = *(volatile u64 *)&(*link)[PORT];
	/* There, and usable. */
	if (UNLIKELY((port >> 16 & 3) != 3))
		return LEFT(EGRESS);
	port &= 0xffff;
	/* Open, and no VLAN interface. */
	if (UNLIKELY(port > CONSTANT(egress_last) || egress[port] != 1))
		return LEFT(EGRESS);
	to->high = (to->high & ~(0xffffULL << 32)) | port << 32;
	to->sent = &sent[(cpu * PORTS + port) * 2];
	to->use = map_lookup(&uses, &index);
	return LIKELY(to->use) ? 0 : LEFT(DAMAGED);
}

/* Makes room for the internal header, which is as long as a tagged link header. Answers where the IP header is then, or 0. */
INLINE u8 *move_for_internal(struct xdp_md *context, u32 tagged)
{
	u8 *data;

	if (!tagged && adjust_head(context, -4))
		return 0;
	data = FRAME(context);
	return data + INTERNAL_HEADER + 20 > FRAME_END(context) ? 0 : data + INTERNAL_HEADER;
}

/* Charges the link, writes the internal header before a packet of `len` bytes, cuts padding off, sends, and counts. */
INLINE int enter(struct xdp_md *context, u8 *ip, struct adjacency *to, u64 *link, u32 len, u32 padding, u64 cpu)
{
	u8 *frame = ip - INTERNAL_HEADER;
	u64 bytes = len + INTERNAL_HEADER, ours = INTERNAL | CONSTANT(cluster) << 8, output = to->low >> 32 & 0xffff;
	u64 epoch = nodes[__builtin_bswap16(output)] & 0xff, cost, now, until, before;

	cost = *(volatile u64 *)&link[NS_PER_BYTE] * bytes >> 16;
	/* A copy for proofs charges nothing. */
	if (CONSTANT(charges) && cost) {
		now = time_ns();
		until = *(volatile u64 *)&link[BUSY_ALL];
		before = (long long)(until - now) > 0 ? until - now : 0;
		if (UNLIKELY(before + cost > *(volatile u64 *)&link[LIMIT])) {
			__sync_fetch_and_add(&link[DROPPED_LOCAL], 1);
			return LEFT(LINK_FULL);
		}
		occupy(&link[BUSY_ALL], until, now, cost);
	}
	/* Hop target and egress node, then the sender: as in the graph, but two fields at a time. */
	AT32(frame) = ours | output << 16;
	AT32(frame + 4) = output | ours << 16;
	AT32(frame + 8) = __builtin_bswap16(CONSTANT(node)) | SECOND << 16 | epoch << 24;
	AT16(frame + 12) = CONSTANT(ethertype);
	/* The adjacency index, and class 0. */
	AT32(frame + 14) = to->low >> 8 & 0xffffff;
	if (UNLIKELY(padding))
		adjust_tail(context, -(int)padding);
	/* The lowest bits are the answer where no device is. */
	if (UNLIKELY(redirect_map(&devices, to->high >> 32 & 0xffff, XDP_DROP) != XDP_REDIRECT))
		return LEFT(REFUSED);
	to->use->packets += 1;
	to->use->bytes += bytes;
	to->sent[0] += 1;
	to->sent[1] += bytes;
	if (CONSTANT(charges)) {
		__sync_fetch_and_add(&link[BYTES], bytes);
		ends[cpu * ENDS + ENDS - 1] += 1;
	}
	return XDP_REDIRECT;
}

/* A bit for each of the host's addresses, and by chance for one foreign address in thousands. */
INLINE int may_be_own(u64 *filter, u64 hash)
{
	return filter[hash >> 58] >> (hash >> 52 & 63) & 1;
}

/* What the filter is for: only those whose bit is set are looked up. `pair` is source and destination. */
INLINE int is_own(void *map, u8 *pair, u32 bytes)
{
	return map_lookup(map, pair + bytes) || map_lookup(map, pair);
}

INLINE u32 fold16(u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/*
 * Whether a sender on this host left a checksum to a card that is not there (fill_checksum.rs), or may
 * have: `sum` is that of the pseudo-header, without the length. The protocol is read for this alone: what the
 * verifier learns of it here would have it look at all that follows once for each.
 */
INLINE int is_partial(u32 protocol, u8 *transport, u32 len, u64 sum, u8 *end)
{
	u32 field, port;

	if (transport + 18 > end)
		return protocol != 1 && protocol != 58;
	sum = fold16(sum + __builtin_bswap16(len) + ((u64)protocol << 8));
	if (protocol == 6)
		return *(u16 *)(transport + 16) == sum;
	if (protocol == 17) {
		field = *(u16 *)(transport + 6);
		port = *(u16 *)(transport + 2);
		/* VXLAN and GENEVE: what is inside may have a partial checksum. */
		return field == sum || port == __builtin_bswap16(4789) || port == __builtin_bswap16(6081);
	}
	/* Sums of other kinds, tunnels, and headers of IPv6 that have to be walked. */
	return protocol != 1 && protocol != 58 && protocol != 50 && protocol != 59 && protocol != 89;
}

/* ---- interface features: what a packet passes before the lookup of its destination ---- */

/* Lists of sources, and next hops of default routes, at most. */
enum { LISTS = 16, DEFAULTS = 64 };

/* Slots of a group that are looked at; a packet whose source has a larger group is the graph's. */
enum { SLOTS = 32 };

/* Checks of a source by routes (RFC 3704). */
enum { NOT_CHECKED, STRICT, LOOSE };

/* What becomes of packets by the lists that their source is on. */
enum { PASS_LISTED, DROP_LISTED, LIMIT_LISTED };

/* Features of the interface that a packet arrived on, and what they found. */
struct features {
	u64 word; /* bits 0-15 the port, 16-17 the check of sources, 18-31 the access list and one more, 32-47 the lists, 48-63
	             the sampling rate */
	u32 listed; /* the lists that the source is on and that hold there */
	u32 ruled; /* rules decided the packet, and `acl_scratch` has their counts */
};

/* A number of which the compiler knows nothing: no comparison of it becomes one of what it was made of. */
#define HIDDEN(x) ({ u64 hidden = (x); asm("" : "+r"(hidden)); hidden; })

/* Words of `seen` about samples: packets up to the next one, packets that could have been sampled, samples, lost samples. */
enum { DISTANCE = 3, SAMPLED, SAMPLES, LOST };

/* A record of `sample`, of so many bytes: port, frame and header length, and the beginning of the frame. */
enum { RECORD = 272, RECORD_WORDS = RECORD / 8, HEADER_BYTES = 256, NO_WAKEUP = 1 };

/*
 * Counts down to the next sample, and takes it: the packet as it arrived. Whether it is reported is known when the packet has
 * ended: one that is left is sampled, or not, where it goes (feature/sampling/element.rs). Distances are those of sample/skip.rs.
 *
 * The rate is a number of its own, and what was taken is noted in memory: else the verifier would look at all that follows once
 * for each branch in here, and it is near its limit (1,000,000 instructions) with access lists.
 */
INLINE void take_sample(struct xdp_md *context, u64 *count, u64 cpu, struct features *features)
{
	u64 rate = HIDDEN(features->word >> 48), left = count[DISTANCE], bytes;
	u64 *record = &sample[cpu * RECORD_WORDS];

	if (!rate)
		return;
	count[DISTANCE] = left - 1;
	/* The last of them; or none was drawn yet, or one for another rate. */
	if (LIKELY(left - 2 < 2 * rate))
		return;
	count[DISTANCE] = 1 + ((u64)random() * (2 * rate - 1) >> 32);
	if (left != 1)
		return;
	bytes = FRAME_END(context) - FRAME(context);
	((u32 *)record)[0] = features->word & 0xffff;
	((u32 *)record)[1] = bytes;
	if (bytes > HEADER_BYTES)
		bytes = HEADER_BYTES;
	/* So the verifier sees that it is neither 0 nor more: there are 14 bytes at least. */
	bytes -= 1;
	asm volatile("" : "+r"(bytes));
	bytes = (bytes & (HEADER_BYTES - 1)) + 1;
	if (!load_bytes(context, 0, &record[2], bytes))
		record[1] = bytes;
}

/* Reports what was taken of a packet that has ended. */
INLINE void report_sample(u64 *count, u64 cpu, struct features *features)
{
	u64 *record = &sample[cpu * RECORD_WORDS];

	if (!HIDDEN(features->word >> 48))
		return;
	count[SAMPLED] += 1;
	if (LIKELY(!*(volatile u64 *)&record[1]))
		return;
	count[SAMPLES] += 1;
	if (ring_output(&ring, record, RECORD, NO_WAKEUP))
		count[LOST] += 1;
}

/* The lists of a source: their action, once for all. Counted when the packet's end is known. */
INLINE int filter_source(u32 lists, struct features *features)
{
	u32 mask = lists & features->word >> 32;

	/* No list is no case of its own: the verifier would look at all that follows once for each. */
	if (UNLIKELY(mask > CONSTANT(verdicts_last)))
		return LEFT(DAMAGED);
	/* A rate is kept in one place. */
	if (verdicts[mask] == LIMIT_LISTED)
		return LEFT(FEATURE);
	features->listed = mask;
	return verdicts[mask] == DROP_LISTED ? LEFT(SOURCE_FILTER) : 0;
}

INLINE void count_listed(u32 mask, u64 cpu, u32 frame, int dropped)
{
	u64 *hit = &hits[cpu * LISTS * 4];

#pragma clang loop unroll(disable)
	for (int i = 0; i < LISTS && mask; i++, hit += 4, mask >>= 1) {
		if (!(mask & 1))
			continue;
		hit[0] += 1;
		hit[1] += frame;
		hit[2] += dropped;
	}
}

/* Whether packets with this action leave by the port, or by any where `port` is above all. */
INLINE int leaves(u32 action, u32 port)
{
	u64 at = (u64)(action & 0x0fffffff) * 2;
	u32 by = action & 0xffff;

	if (action >> 28 != GLEAN) {
		if (action >> 28 != ADJACENCY || at > CONSTANT(adjacencies_last))
			return 0;
		by = *(volatile u64 *)&adjacencies[at + 1] >> 32 & 0xffff;
	}
	return by == port || port > 0xffff;
}

/* uRPF, as feature/urpf.rs has it: whether a source with this next hop may arrive there. */
INLINE int check_source(u64 hop, struct features *features)
{
	u32 check = features->word >> 16 & 3, port = features->word & 0xffff, count;
	u64 word, first, slot;

	if (hop > CONSTANT(hops_last))
		return LEFT(DAMAGED);
	if (check == LOOSE) {
		/* A default route does not count (RFC 3704 2.5). */
#pragma clang loop unroll(disable)
		for (u64 i = 0; i < DEFAULTS && i < defaults[0]; i++)
			if (defaults[1 + i] == hop)
				return LEFT(URPF);
		port = 0x10000;
	}
	word = *(volatile u64 *)&hops[hop];
	count = word >> 32;
	if (LIKELY(!count))
		return leaves(word, port) ? 0 : LEFT(URPF);
	if (count > SLOTS)
		return LEFT(FEATURE);
	first = word & 0x0fffffff;
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < SLOTS && i < count; i++) {
		slot = first + i;
		/* As a number, not as a place that moves: so the verifier sees its bounds. */
		asm volatile("" : "+r"(slot));
		if (slot > CONSTANT(slots_last))
			return LEFT(DAMAGED);
		if (leaves(*(volatile u32 *)&slots[slot], port))
			return 0;
	}
	return LEFT(URPF);
}

/* ---- access lists, as feature/acl/rules.rs has them ---- */

/* Words of a key, and values of words for what a packet lacks (filter/boxes.rs). */
enum { SRC, DST, SRC_PORT, DST_PORT, PROTOCOL, TCP_FLAGS, TRAFFIC_CLASS, LENGTH, SRC_REST, DST_REST = 11 };
/* Behind the key: where the upper layer begins, and whether the frame has a tag. */
enum { UPPER = 14, HAS_TAG = 15, EXTENSIONS = 8 };
enum { NO_PORT = 0x10000, ICMP = 0x20000, NO_FLAGS = 0x100, FRAGMENT = 0x200, LATER = 0x400 };

/*
 * Behind the key in `acl_scratch`: counts of the rule that decides and of those that only count, how many these are, and
 * a word that stands for no rule, which is read from there because the verifier would look at all that follows once with
 * the number and once without.
 */
enum { SCRATCH = 64, COUNTS = 16, MOST_COUNTS = 32, COUNTED = 48, NO_RULE = 49 };

/* Rows, by the first word; none of these: a node. */
enum { A_COMPARISON = 1 << 4, A_RULE = 1 << 5, INEXACT = 1 << 6, DENIES = 1 << 7, NO_NODE = 0xf0 };

/*
 * Trees of a list (and the end of them), nodes above a leaf, and rows of a leaf that are read; a packet that needs
 * more is the graph's.
 */
enum { TREES = 7, DEPTH = 20, ROWS = 64 };

/*
 * Branches only lead out of these loops, and places are masked as they change: with two branches through a step, or with
 * places that differ in what it knows of them, the verifier would follow all branches through all steps. It takes a number
 * that is 0 or -1 for two, so conditions are 0 or 1, and factors.
 */
#define IS_NEGATIVE(x) HIDDEN(HIDDEN(x) >> 63)

/* The place of a row. There is a power of two of them, so that nothing has to be compared. */
#define PLACE(at) HIDDEN((at) & CONSTANT(acl_mask))

/* From the root of a tree at `at` to the first row of a leaf. Returns 0, or why the packet is the graph's. */
INLINE int find_leaf(u32 *key, u64 *at)
{
	u64 how, value, less;
	u32 *row;

#pragma clang loop unroll(disable)
	for (int i = 0; i < DEPTH; i++) {
		row = &acl[*at * 4];
		how = row[0];
		if (how & NO_NODE)
			return 0;
		value = (u64)key[how & 15] - row[2];
		value = value * (IS_NEGATIVE(value) ^ 1) >> (how >> 8 & 31);
		less = value - row[3];
		*at = PLACE((u64)row[1] + row[3] + less * IS_NEGATIVE(less));
	}
	return LEFT(FEATURE);
}

/* Behind a row of a leaf: the next comparison, or the next rule. */
INLINE u64 next_row(u32 *key, u32 *row, u64 at)
{
	u32 value = (key[row[0] & 15] & row[1]) - row[2];

	return PLACE(at + 1 + IS_NEGATIVE((u64)row[3] - value) * ((row[0] >> 16) - 1));
}

/* The first rule that contains the key, and the first word of its row. Returns 0, or why the packet is the graph's. */
INLINE int decide(u32 *key, u64 tree, u64 *rule, u64 *flags)
{
	u64 best = key[NO_RULE], unsure = best, found = best, how, less, at;
	u32 *row;

#pragma clang loop unroll(full)
	for (int t = 0; t < TREES; t++) {
		tree = PLACE(tree);
		row = &acl[tree * 4];
		/* No tree from here on has a rule before the one found. */
		if (row[1] >= best) {
			if (CONSTANT(acl_inexact) && unsure < best)
				return LEFT(FEATURE);
			*rule = best;
			*flags = found;
			return 0;
		}
		at = PLACE(row[0]);
		if (find_leaf(key, &at))
			return LEFT(FEATURE);
#pragma clang loop unroll(disable)
		for (int i = 0; ; i++) {
			if (i == ROWS)
				return LEFT(FEATURE);
			row = &acl[at * 4];
			how = row[0];
			/* One that takes the packet, or the end. */
			if ((how & (A_RULE | INEXACT)) == A_RULE)
				break;
			if (CONSTANT(acl_inexact)) {
				less = (row[1] | (u32)((how >> 5 & 1) - 1)) - unsure;
				unsure += less * IS_NEGATIVE(less);
			}
			at = next_row(key, row, at);
		}
		less = row[1] - best;
		best += less * IS_NEGATIVE(less);
		found ^= (found ^ how) * IS_NEGATIVE(less);
		tree++;
	}
	return LEFT(FEATURE);
}

/* Notes the rules before `rule` that count a packet. Returns 0, or why the packet is the graph's. */
INLINE int note_counts(u32 *key, u64 tree, u64 rule, u32 first)
{
	u64 last = key[NO_RULE], inexact = 0, how, is_rule, differs, at, count;
	u32 *row;

#pragma clang loop unroll(full)
	for (int t = 0; t < TREES; t++) {
		tree = PLACE(tree);
		row = &acl[tree * 4];
		if (row[1] >= rule)
			return inexact || *(volatile u32 *)&key[COUNTED] > MOST_COUNTS ? LEFT(FEATURE) : 0;
		at = PLACE(row[0]);
		if (find_leaf(key, &at))
			return LEFT(FEATURE);
#pragma clang loop unroll(disable)
		for (int i = 0; ; i++) {
			if (i == ROWS)
				return LEFT(FEATURE);
			row = &acl[at * 4];
			how = row[0];
			is_rule = how >> 5 & 1;
			if (is_rule & (IS_NEGATIVE(row[1] - rule) ^ 1))
				break;
			inexact |= how & INEXACT;
			/* One with several boxes comes more than once, each time behind itself. */
			differs = row[1] - last;
			differs = IS_NEGATIVE(differs | -differs) & is_rule;
			last ^= (last ^ row[1]) * differs;
			/* Read anew, so that the verifier does not count along. */
			count = *(volatile u32 *)&key[COUNTED];
			key[COUNTS + (count & (MOST_COUNTS - 1))] = first + row[1];
			key[COUNTED] = count + differs;
			at = next_row(key, row, at);
		}
		tree++;
	}
	return LEFT(FEATURE);
}

/* Decides the packet with this key; `v6` is its family. Counted when the packet's end is known. */
INLINE int check_rules(u32 *key, int v6, struct features *features)
{
	u32 *list = &acl[PLACE(((features->word >> 18 & 0x3fff) - 1) * 2 + v6) * 4];
	u64 rule, flags, less;

	if (decide(key, list[0], &rule, &flags))
		return LEFT(FEATURE);
	/* No rule, which denies: the count behind those of all. */
	less = list[3] - rule;
	rule += less * IS_NEGATIVE(less);
	key[COUNTS] = list[2] + rule;
	key[COUNTED] = 1;
	if (CONSTANT(acl_counts) && list[1] && note_counts(key, list[1], rule, list[2]))
		return LEFT(FEATURE);
	features->ruled = 1;
	return flags & DENIES ? LEFT(ACL) : 0;
}

INLINE void count_rules(u64 cpu, u32 frame)
{
	u32 *key = &acl_scratch[cpu * SCRATCH];
	u64 at;

#pragma clang loop unroll(disable)
	for (u32 i = 0; i < MOST_COUNTS && i < key[COUNTED]; i++) {
		at = key[COUNTS + i] + cpu * CONSTANT(acl_stride);
		asm volatile("" : "+r"(at));
		if (UNLIKELY(at > CONSTANT(acl_hits_last)))
			return;
		acl_hits[at * 2] += 1;
		acl_hits[at * 2 + 1] += frame;
	}
}

/* The words of a key from the header behind that of IP, of which `len` bytes belong to the packet. */
INLINE void set_transport(u32 *key, u32 protocol, u8 *transport, u32 len, u8 *end)
{
	if (protocol == 1 || protocol == 58) {
		if (len >= 1 && transport + 1 <= end)
			key[SRC_PORT] = ICMP + transport[0];
	} else if (protocol == 6 || protocol == 17) {
		if (len >= 4 && transport + 4 <= end) {
			key[SRC_PORT] = __builtin_bswap16(*(u16 *)transport);
			key[DST_PORT] = __builtin_bswap16(*(u16 *)(transport + 2));
		}
		if (protocol == 6 && len >= 14 && transport + 14 <= end)
			key[TCP_FLAGS] += transport[13] - NO_FLAGS;
	}
}

INLINE int check_rules4(u8 *ip, u8 *end, u32 header, u32 total, u64 cpu, struct features *features)
{
	u32 *key = &acl_scratch[cpu * SCRATCH], fragment = __builtin_bswap16(*(u16 *)(ip + 6));
	u32 protocol = *(volatile u8 *)(ip + 9);

	key[SRC] = __builtin_bswap32(*(u32 *)(ip + 12));
	key[DST] = __builtin_bswap32(*(u32 *)(ip + 16));
	key[SRC_PORT] = NO_PORT;
	key[DST_PORT] = NO_PORT;
	key[PROTOCOL] = protocol;
	key[TCP_FLAGS] = NO_FLAGS | (fragment & 0x3fff ? FRAGMENT : 0) | (fragment & 0x1fff ? LATER : 0);
	key[TRAFFIC_CLASS] = ip[1];
	key[LENGTH] = total;
	if (!(fragment & 0x1fff))
		set_transport(key, protocol, ip + header, total - header, end);
	return check_rules(key, 0, features);
}

/* Hop by hop, routing, fragment, authentication, destination. */
INLINE int is_extension(u32 protocol)
{
	return protocol == 0 || protocol == 43 || protocol == 44 || protocol == 51 || protocol == 60;
}

/*
 * Follows extension headers, as upper_layer (crates/packet/src/frame/wire/icmp.rs) does: puts protocol and fragment into
 * the key, and where the upper layer begins. Answers 0, or that the chain is broken or longer than it follows. What it knows lies
 * in the key meanwhile, so that the verifier does not look at all that follows once for each way to here.
 */
INLINE int skip_extensions(u32 *key, u8 *ip, u8 *end, u32 payload)
{
	u32 protocol, at, bytes;
	u8 *header;

	key[UPPER] = 40;
#pragma clang loop unroll(disable)
	for (int i = 0; i < EXTENSIONS; i++) {
		protocol = *(volatile u32 *)&key[PROTOCOL];
		if (!is_extension(protocol) || *(volatile u32 *)&key[TCP_FLAGS] & LATER)
			return 0;
		at = *(volatile u32 *)&key[UPPER] & 0x7fff;
		header = ip + at;
		if (at + 8 > payload + 40 || header + 8 > end)
			break;
		bytes = header[1] * 8 + 8;
		if (protocol == 51)
			bytes = header[1] * 4 + 8;
		if (protocol == 44) {
			bytes = 8;
			key[TCP_FLAGS] = NO_FLAGS | FRAGMENT | (*(u16 *)(header + 2) & 0xf8ff ? LATER : 0);
		}
		if (at + bytes > payload + 40)
			break;
		key[PROTOCOL] = header[0];
		key[UPPER] = at + bytes;
	}
	return LEFT(FEATURE);
}

/* `walks`: behind extension headers; a packet with any is the graph's otherwise. */
INLINE int check_rules6(u8 *ip, u8 *end, int walks, u32 payload, u64 cpu, struct features *features)
{
	u32 *key = &acl_scratch[cpu * SCRATCH], protocol = *(volatile u8 *)(ip + 6), at = 40;

	if (!walks && UNLIKELY(is_extension(protocol)))
		return LEFT(FEATURE);
	key[SRC] = __builtin_bswap32(*(u32 *)(ip + 8));
	key[DST] = __builtin_bswap32(*(u32 *)(ip + 24));
	key[SRC_REST] = __builtin_bswap32(*(u32 *)(ip + 12));
	key[SRC_REST + 1] = __builtin_bswap32(*(u32 *)(ip + 16));
	key[SRC_REST + 2] = __builtin_bswap32(*(u32 *)(ip + 20));
	key[DST_REST] = __builtin_bswap32(*(u32 *)(ip + 28));
	key[DST_REST + 1] = __builtin_bswap32(*(u32 *)(ip + 32));
	key[DST_REST + 2] = __builtin_bswap32(*(u32 *)(ip + 36));
	key[SRC_PORT] = NO_PORT;
	key[DST_PORT] = NO_PORT;
	key[PROTOCOL] = protocol;
	key[TCP_FLAGS] = NO_FLAGS;
	key[TRAFFIC_CLASS] = __builtin_bswap16(*(u16 *)ip) >> 4 & 0xff;
	key[LENGTH] = payload + 40;
	if (walks) {
		if (skip_extensions(key, ip, end, payload))
			return LEFT(FEATURE);
		protocol = *(volatile u32 *)&key[PROTOCOL];
		at = *(volatile u32 *)&key[UPPER] & 0x7fff;
		if (!(*(volatile u32 *)&key[TCP_FLAGS] & LATER))
			set_transport(key, protocol, ip + at, payload + 40 - at, end);
	} else {
		set_transport(key, protocol, ip + 40, payload, end);
	}
	return check_rules(key, 1, features);
}

/*
 * The IP header, and the end of the frame, as if they were read for the first time: what the verifier has learned of the
 * packet on different branches to here would have it follow all that comes once for each.
 */
INLINE u8 *anew(struct xdp_md *context, u32 tagged, u32 bytes, u8 **end)
{
	u8 *ip = (u8 *)(u64)*(volatile u32 *)&context->data + 14 + tagged * 4;

	*end = (u8 *)(u64)*(volatile u32 *)&context->data_end;
	return ip + bytes > *end ? 0 : ip;
}

#define ANEW4(at) __builtin_bswap32(*(volatile u32 *)(at))
#define ANEW6(at) __builtin_bswap64(*(volatile u64 *)(at))

INLINE int features4(struct xdp_md *context, u32 tagged, u32 header, u32 total, u64 cpu, struct features *features)
{
	u8 *ip, *end;
	int left_out;

	if (CONSTANT(lists) && features->word >> 32) {
		ip = anew(context, tagged, 20, &end);
		if (!ip)
			return LEFT(SHORT);
		left_out = filter_source(lists4(ANEW4(ip + 12)), features);
		if (UNLIKELY(left_out))
			return left_out;
	}
	if (CONSTANT(acls) && features->word >> 18 & 0x3fff) {
		ip = anew(context, tagged, 20, &end);
		if (!ip)
			return LEFT(SHORT);
		left_out = check_rules4(ip, end, header, total, cpu, features);
		if (UNLIKELY(left_out))
			return left_out;
	}
	if (CONSTANT(urpf) && features->word >> 16 & 3) {
		ip = anew(context, tagged, 20, &end);
		return ip ? check_source(lookup4(ANEW4(ip + 12)), features) : LEFT(SHORT);
	}
	return 0;
}

INLINE int features6(struct xdp_md *context, u32 tagged, int walks, u32 payload, u64 cpu, struct features *features)
{
	u8 *ip, *end;
	int left_out;

	if (CONSTANT(lists) && features->word >> 32) {
		ip = anew(context, tagged, 40, &end);
		if (!ip)
			return LEFT(SHORT);
		left_out = filter_source(lists6(ANEW6(ip + 8), ANEW6(ip + 16)), features);
		if (UNLIKELY(left_out))
			return left_out;
	}
	if (CONSTANT(acls) && features->word >> 18 & 0x3fff) {
		ip = anew(context, tagged, 40, &end);
		if (!ip)
			return LEFT(SHORT);
		left_out = check_rules6(ip, end, walks, payload, cpu, features);
		if (UNLIKELY(left_out))
			return left_out;
	}
	if (CONSTANT(urpf) && features->word >> 16 & 3) {
		ip = anew(context, tagged, 40, &end);
		return ip ? check_source(lookup6(ANEW6(ip + 8), ANEW6(ip + 16)), features) : LEFT(SHORT);
	}
	return 0;
}

INLINE void count_down4(u8 *ip)
{
	/* RFC 1624: one less in the high byte is one more in the sum, carried around. */
	u32 sum = (u32)*(u16 *)(ip + 10) + 1;

	sum += sum >= 0xffff;
	*(u16 *)(ip + 10) = sum;
	ip[8] -= 1;
}

/* `features` is 0 in a program for interfaces without any. */
INLINE int ip4(struct xdp_md *context, u8 *ip, u8 *end, u32 tagged, u64 cpu, struct features *features)
{
	u32 room = end - ip, total, src, dst, fragment, hash;
	u64 word, sum, state, *link;
	struct adjacency to;
	int left_out;

	if (UNLIKELY(ip + 20 > end))
		return LEFT(SHORT);
	if (UNLIKELY(ip[0] != 0x45))
		return LEFT(OPTIONS);
	sum = (u64)*(u32 *)ip + *(u32 *)(ip + 4) + *(u32 *)(ip + 8) + *(u32 *)(ip + 12) + *(u32 *)(ip + 16);
	total = __builtin_bswap16(*(u16 *)(ip + 2));
	if (UNLIKELY(fold16(sum) != 0xffff || total < 20 || total > room))
		return LEFT(HEADER);
	src = *(u32 *)(ip + 12);
	dst = *(u32 *)(ip + 16);
	/* 0/8, 127/8, multicast and above, 169.254/16: neither source nor destination. */
#define SPECIAL(a) (((a) & 0xff) == 0 || ((a) & 0xff) == 127 || ((a) & 0xff) >= 224 || ((a) & 0xffff) == 0xfea9)
	if (UNLIKELY(SPECIAL(src) || SPECIAL(dst)))
		return LEFT(ADDRESS);
	fragment = __builtin_bswap16(*(u16 *)(ip + 6));
	/* The end of a fragment must lie in a packet of at most 65,535 bytes. */
	if (UNLIKELY((fragment & 0x1fff) * 8 + total > 65535))
		return LEFT(HEADER);
	src = __builtin_bswap32(src);
	dst = __builtin_bswap32(dst);
	if (UNLIKELY(may_be_own(own4, src * 0x9e3779b97f4a7c15ULL) || may_be_own(own4, dst * 0x9e3779b97f4a7c15ULL)))
		if (is_own(&local4, ip + 12, 4))
			return LEFT(ADDRESS);
	/* Behind that: what is for the host itself comes with a TTL of 1 from neighbors such as those of BGP. */
	if (UNLIKELY(ip[8] <= 1))
		return LEFT(EXPIRED);
	fragment &= 0x3fff;
	if (CONSTANT(fill) && !fragment) {
		sum = (u64)*(u32 *)(ip + 12) + *(u32 *)(ip + 16);
		if (is_partial(*(volatile u8 *)(ip + 9), ip + 20, total - 20, sum, end))
			return LEFT(PARTIAL_CHECKSUM);
	}

	if (features) {
		left_out = features4(context, tagged, 20, total, cpu, features);
		if (UNLIKELY(left_out))
			return left_out;
		ip = anew(context, tagged, 20, &end);
		if (!ip)
			return LEFT(SHORT);
		src = ANEW4(ip + 12);
		dst = ANEW4(ip + 16);
		fragment = __builtin_bswap16(*(volatile u16 *)(ip + 6)) & 0x3fff;
	}
	word = lookup4(dst);
	if (UNLIKELY(word > CONSTANT(hops_last)))
		return LEFT(DAMAGED);
	word = *(volatile u64 *)&hops[word];
	if (UNLIKELY(word >> 32)) {
		/* Errors take the path of the flow that they quote. */
		if (ip[9] == 1 && !fragment)
			return LEFT(QUOTED);
		state = fold(CONSTANT(seed), (u64)src << 32 | dst);
		sum = fragment ? ip[9] : transport_word(ip[9], ip + 20, total - 20, end);
		hash = finish(fold(state, sum));
		word = slot_of(word, hash);
	}
	left_out = find_adjacency(word, total, cpu, &to);
	if (UNLIKELY(left_out)) {
		if (!CONSTANT(enters) || left_out != LEFT(EGRESS))
			return left_out;
		left_out = find_link(word, total, cpu, &to, &link);
		if (left_out)
			return left_out;
		ip = move_for_internal(context, tagged);
		if (!ip)
			return LEFT(HEADROOM);
		count_down4(ip);
		return enter(context, ip, &to, link, total, room - total, cpu);
	}
	if (CONSTANT(tags)) {
		ip = move_head(context, ip, tagged, to.tag);
		if (UNLIKELY(!ip))
			return LEFT(HEADROOM);
	}
	count_down4(ip);
	return leave_by(context, ip, &to, total, room - total);
}

/* ::/96 and ::ffff:0:0/96. */
INLINE int is_martian6(u64 high, u64 low)
{
	return !high && (!(low >> 32) || low >> 32 == 0xffff);
}

INLINE int ip6(struct xdp_md *context, u8 *ip, u8 *end, u32 tagged, u64 cpu, struct features *features)
{
	u32 room = end - ip, payload, first, hash, protocol;
	u64 src, src_low, dst, dst_low, word, sum, state, *link;
	struct adjacency to;
	int left_out;

	if (UNLIKELY(ip + 40 > end))
		return LEFT(SHORT);
	first = __builtin_bswap32(*(u32 *)ip);
	payload = __builtin_bswap16(*(u16 *)(ip + 4));
	protocol = ip[6];
	if (UNLIKELY(first >> 28 != 6 || payload + 40 > room || (!payload && !protocol)))
		return LEFT(HEADER);
	src = __builtin_bswap64(*(u64 *)(ip + 8));
	src_low = __builtin_bswap64(*(u64 *)(ip + 16));
	dst = __builtin_bswap64(*(u64 *)(ip + 24));
	dst_low = __builtin_bswap64(*(u64 *)(ip + 32));
	/* Multicast, link-local, martians. */
	if (UNLIKELY(src >> 54 >= 0x3fa || dst >> 54 >= 0x3fa))
		if (src >> 56 == 0xff || dst >> 56 == 0xff || src >> 54 == 0x3fa || dst >> 54 == 0x3fa)
			return LEFT(ADDRESS);
	if (UNLIKELY(is_martian6(src, src_low) || is_martian6(dst, dst_low)))
		return LEFT(ADDRESS);
#define HASH6(h, l) ((((h) * 0xbf58476d1ce4e5b9ULL) ^ (l)) * 0x9e3779b97f4a7c15ULL)
	if (UNLIKELY(may_be_own(own6, HASH6(src, src_low)) || may_be_own(own6, HASH6(dst, dst_low))))
		if (is_own(&local6, ip + 8, 16))
			return LEFT(ADDRESS);
	if (UNLIKELY(ip[7] <= 1))
		return LEFT(EXPIRED);
	if (CONSTANT(fill)) {
		sum = (u64)*(u32 *)(ip + 8) + *(u32 *)(ip + 12) + *(u32 *)(ip + 16) + *(u32 *)(ip + 20);
		sum += (u64)*(u32 *)(ip + 24) + *(u32 *)(ip + 28) + *(u32 *)(ip + 32) + *(u32 *)(ip + 36);
		if (is_partial(*(volatile u8 *)(ip + 6), ip + 40, payload, sum, end))
			return LEFT(PARTIAL_CHECKSUM);
	}

	if (features) {
		left_out = features6(context, tagged, 0, payload, cpu, features);
		if (UNLIKELY(left_out))
			return left_out;
		ip = anew(context, tagged, 40, &end);
		if (!ip)
			return LEFT(SHORT);
		src = ANEW6(ip + 8);
		src_low = ANEW6(ip + 16);
		dst = ANEW6(ip + 24);
		dst_low = ANEW6(ip + 32);
		first = ANEW4(ip);
		protocol = *(volatile u8 *)(ip + 6);
	}
	word = lookup6(dst, dst_low);
	if (UNLIKELY(word > CONSTANT(hops_last)))
		return LEFT(DAMAGED);
	word = *(volatile u64 *)&hops[word];
	if (UNLIKELY(word >> 32)) {
		if (protocol == 58)
			return LEFT(QUOTED);
		state = fold(fold(CONSTANT(seed), src), src_low);
		state = fold(fold(state, dst), dst_low);
		sum = (u64)(first & 0xfffff) << 40 | transport_word(protocol, ip + 40, payload, end);
		hash = finish(fold(state, sum));
		word = slot_of(word, hash);
	}
	left_out = find_adjacency(word, payload + 40, cpu, &to);
	if (UNLIKELY(left_out)) {
		if (!CONSTANT(enters) || left_out != LEFT(EGRESS))
			return left_out;
		left_out = find_link(word, payload + 40, cpu, &to, &link);
		if (left_out)
			return left_out;
		ip = move_for_internal(context, tagged);
		if (!ip)
			return LEFT(HEADROOM);
		ip[7] -= 1;
		return enter(context, ip, &to, link, payload + 40, room - payload - 40, cpu);
	}
	if (CONSTANT(tags)) {
		ip = move_head(context, ip, tagged, to.tag);
		if (UNLIKELY(!ip))
			return LEFT(HEADROOM);
	}
	ip[7] -= 1;
	return leave_by(context, ip, &to, payload + 40, room - payload - 40);
}

/* Whom a frame is for and what is in it. `count` becomes the place in `seen` of who received it. */
INLINE int route(struct xdp_md *context, u8 *data, u8 *end, u64 cpu, u64 **count, struct features *features)
{
	u8 *ip = data + 14;
	u64 mac, vlan, place;
	u32 type, tag, tagged = 0;
	int ours;

	if (UNLIKELY(ip > end))
		return LEFT(NOT_OURS);
	mac = *(u32 *)data | (u64)*(u16 *)(data + 4) << 32;
	type = *(u16 *)(data + 12);
	ours = mac == (settings[0] & 0xffffffffffffULL);
	if (UNLIKELY(!ours || (type != IP4 && type != IP6))) {
		if (type != TAGGED)
			return ours ? LEFT(TYPE) : LEFT(NOT_OURS);
		if (!CONSTANT(tagged))
			return LEFT(TAG);
		ip = data + 18;
		if (UNLIKELY(ip > end))
			return LEFT(SHORT);
		/* Masked last, so that the verifier sees it. */
		tag = __builtin_bswap16(*(u16 *)(data + 14));
		asm volatile("" : "+r"(tag));
		vlan = vlans[tag & 0xfff];
		place = vlan >> 48;
		if (!vlan || place > CONSTANT(seen_last))
			return LEFT(TAG);
		*count = &seen[(place * (CONSTANT(processors) + 1) + cpu) * SEEN];
		if (mac != (vlan & 0xffffffffffffULL))
			return LEFT(NOT_OURS);
		type = *(u16 *)(data + 16);
		if (type != IP4 && type != IP6)
			return LEFT(TYPE);
		tagged = 1;
		if (features)
			features->word = ingress[place];
	} else if (features) {
		features->word = ingress[0];
	}
	if (features && CONSTANT(samples))
		take_sample(context, *count, cpu, features);
	if (type == IP4)
		return CONSTANT(v4_form) ? ip4(context, ip, end, tagged, cpu, features) : LEFT(NO_TABLE);
	return CONSTANT(v6_form) ? ip6(context, ip, end, tagged, cpu, features) : LEFT(NO_TABLE);
}

/* The count of a CPU is odd while it is in here: a writer that unlinked something waits for that. */
INLINE int run(struct xdp_md *context, struct features *features)
{
	u64 cpu = processor() & CONSTANT(processors);
	u64 *epoch = &epochs[cpu * 8], *count = &seen[cpu * SEEN];
	u64 now = *epoch + 1;
	u8 *data = (u8 *)(u64)context->data, *end = (u8 *)(u64)context->data_end;
	u32 frame = end - data;
	int action, filtered;

	if (features && CONSTANT(samples))
		sample[cpu * RECORD_WORDS + 1] = 0;
	/* An exchange is a full barrier: nothing is read before the count is seen. */
	__sync_lock_test_and_set(epoch, now);
	if (CONSTANT(nonstop) && UNLIKELY((long long)(ticks() - alive[1]) > 0))
		action = LEFT(AWAY);
	else
		action = route(context, data, end, cpu, &count, features);
	filtered = action == LEFT(SOURCE_FILTER);
	if (UNLIKELY(action < 0))
		action = give_up(action, count);
	if (LIKELY(action == XDP_REDIRECT || action == XDP_DROP)) {
		count[0] += 1;
		count[1] += frame;
		if (features && features->listed)
			count_listed(features->listed, cpu, frame, filtered);
		if (features && CONSTANT(acl_counted) && features->ruled)
			count_rules(cpu, frame);
		if (features && CONSTANT(samples))
			report_sample(count, cpu, features);
	} else {
		count[2] += 1;
	}
	asm volatile("" ::: "memory");
	*(volatile u64 *)epoch = now + 1;
	return action;
}

int forward(struct xdp_md *context)
{
	return run(context, 0);
}

/* For an interface that has features, or VLAN interfaces that do. */
int forward_with_features(struct xdp_md *context)
{
	struct features features = { 0 };

	return run(context, &features);
}

/* ---- packets to the router itself: features with `local`, to which `ingress` and the numbers of features are bound ---- */

INLINE int is_tag(u32 type)
{
	return type == TAGGED || type == SERVICE_TAGGED;
}

/* What the kernel drops by itself is not looked at. */
INLINE int check_local4(struct xdp_md *context, u32 tagged, u64 cpu, struct features *features)
{
	u8 *end, *ip = anew(context, tagged, 20, &end);
	u32 header, total;

	if (!ip)
		return 0;
	header = (*(volatile u8 *)ip & 15) * 4;
	total = __builtin_bswap16(*(volatile u16 *)(ip + 2));
	if (*(volatile u8 *)ip >> 4 != 4 || header < 20 || total < header || total > end - ip)
		return 0;
	return features4(context, tagged, header, total, cpu, features);
}

INLINE int check_local6(struct xdp_md *context, u32 tagged, u64 cpu, struct features *features)
{
	u8 *end, *ip = anew(context, tagged, 40, &end);
	u32 payload;

	if (!ip)
		return 0;
	payload = __builtin_bswap16(*(volatile u16 *)(ip + 4));
	if (*(volatile u8 *)ip >> 4 != 6 || payload + 40 > end - ip)
		return 0;
	return features6(context, tagged, 1, payload, cpu, features);
}

/* Answers 0, or why the packet is dropped. `tag` is one that the device took off, with bit 16, or 0. */
INLINE int check_local(struct xdp_md *context, u32 tag, u64 cpu, u64 **count, struct features *features)
{
	u8 *data = FRAME(context), *end = FRAME_END(context);
	u32 *key = &acl_scratch[cpu * SCRATCH], *list, type, tagged = 0;
	u64 mac, own = settings[0] & 0xffffffffffffULL, vlan, place = 0;
	int answer;

	if (data + 18 > end)
		return 0;
	mac = *(u32 *)data | (u64)*(u16 *)(data + 4) << 32;
	type = *(u16 *)(data + 12);
	if (is_tag(type)) {
		/* What has a tag in a VLAN is for an interface on the VLAN interface; a tag without VLAN is none to the kernel. */
		if (tag & 0xfff)
			return 0;
		tag = __builtin_bswap16(*(u16 *)(data + 14));
		if (type == SERVICE_TAGGED && tag & 0xfff)
			return 0;
		type = *(u16 *)(data + 16);
		if (is_tag(type) && !(tag & 0xfff))
			return LEFT(ACL);
		tagged = 1;
	}
	/* Masked last, so that the verifier sees it. */
	asm volatile("" : "+r"(tag));
	tag &= 0xfff;
	if (tag) {
		if (!CONSTANT(tagged))
			return 0;
		vlan = vlans[tag];
		place = vlan >> 48;
		if (!vlan || place > CONSTANT(seen_last))
			return 0;
		*count = &seen[(place * (CONSTANT(processors) + 1) + cpu) * SEEN];
		own = vlan & 0xffffffffffffULL;
	}
	/* Frames to others; not those to a group. */
	if (mac != own && !(mac & 1))
		return 0;
	features->word = ingress[place];
	if (type != IP4 && type != IP6)
		return 0;
	key[HAS_TAG] = tagged;
	tagged = *(volatile u32 *)&key[HAS_TAG] & 1;
	if (type == IP4)
		answer = check_local4(context, tagged, cpu, features);
	else
		answer = check_local6(context, tagged, cpu, features);
	/* What cannot be decided here can be nowhere else: no rule, which denies. */
	if (answer == LEFT(FEATURE)) {
		if (CONSTANT(acls) && features->word >> 18 & 0x3fff) {
			list = &acl[PLACE(((features->word >> 18 & 0x3fff) - 1) * 2 + (type == IP6)) * 4];
			key[COUNTS] = list[2] + list[3];
			key[COUNTED] = 1;
			features->ruled = 1;
		}
		return LEFT(ACL);
	}
	return answer <= LEFT(BLACKHOLE) ? answer : 0;
}

/* Sees frames that are about to pass to the kernel. Answers XDP_DROP, or XDP_PASS. */
int guard(struct xdp_md *context, u32 tag)
{
	struct features features = { 0 };
	u64 cpu = processor() & CONSTANT(processors);
	u64 *epoch = &epochs[cpu * 8], *count = &seen[cpu * SEEN];
	u64 now = *epoch + 1;
	u32 frame = FRAME_END(context) - FRAME(context);
	int answer;

	__sync_lock_test_and_set(epoch, now);
	answer = check_local(context, tag, cpu, &count, &features);
	if (features.listed)
		count_listed(features.listed, cpu, frame, answer == LEFT(SOURCE_FILTER));
	if (features.ruled)
		count_rules(cpu, frame);
	if (answer) {
		give_up(answer, count);
		count[0] += 1;
		count[1] += frame;
	}
	asm volatile("" ::: "memory");
	*(volatile u64 *)epoch = now + 1;
	return answer ? XDP_DROP : XDP_PASS;
}

/*
 * For proofs: the packet is a list of addresses, the first 4 bytes of each of which become its next hop.
 * IPv4: 4 bytes each, IPv6: 16, of which the high half is first, all in the machine's order.
 */
int lookups4(struct xdp_md *context)
{
	u32 *data = (u32 *)(u64)context->data, *end = (u32 *)(u64)context->data_end;
	u64 *epoch = &epochs[(processor() & CONSTANT(processors)) * 8];
	u64 now = *epoch + 1;

	__sync_lock_test_and_set(epoch, now);
#pragma clang loop unroll(disable)
	for (int i = 0; i < MOST_ADDRESSES && data + 1 <= end; i++, data++)
		*data = lookup4(*data);
	asm volatile("" ::: "memory");
	*(volatile u64 *)epoch = now + 1;
	return XDP_DROP;
}

int lookups6(struct xdp_md *context)
{
	u64 *data = (u64 *)(u64)context->data, *end = (u64 *)(u64)context->data_end;
	u64 *epoch = &epochs[(processor() & CONSTANT(processors)) * 8];
	u64 now = *epoch + 1;

	__sync_lock_test_and_set(epoch, now);
#pragma clang loop unroll(disable)
	for (int i = 0; i < MOST_ADDRESSES && data + 2 <= end; i++, data += 2)
		*(u32 *)data = lookup6(data[0], data[1]);
	asm volatile("" ::: "memory");
	*(volatile u64 *)epoch = now + 1;
	return XDP_DROP;
}
