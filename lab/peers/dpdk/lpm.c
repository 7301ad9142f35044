/*
 * rte_lpm: DIR-24-8 with the length in each entry. Its functions are inlined here.
 *
 * rte_lpm_add looks for the route among all of its length, so a full table takes a minute and more. The engine
 * rte_lpm_filled writes the entries that it would have written, into the same table, in its stead: that has the same
 * lookups and no updates.
 */
#include <errno.h>
#include <string.h>

#include <rte_lpm.h>

#include "loop.h"
#include "peer.h"

#define CHUNKS (1 << 16)

static struct rte_lpm *lpm;

static int create(const struct table *table, int socket)
{
	const struct rte_lpm_config config = {
		.max_rules = (uint32_t)table->count + MORE_ROUTES,
		.number_tbl8s = CHUNKS,
	};
	lpm = rte_lpm_create("peer", socket, &config);
	return lpm ? 0 : -1;
}

static int add(const struct route *r)
{
	return rte_lpm_add(lpm, r->v4, r->len, r->hop);
}

static int del(const struct route *r)
{
	return rte_lpm_delete(lpm, r->v4, r->len);
}

static uint64_t bytes(const struct table *table)
{
	return (4ull << 24) + blocks_with_longer(table, 24) * 1024;
}

static uint32_t raw_hop(const void *out, unsigned i)
{
	uint32_t entry = ((const uint32_t *)out)[i];
	return entry & RTE_LPM_LOOKUP_SUCCESS ? entry & 0x00ffffff : 0;
}

static uint32_t plain_hop(const void *out, unsigned i)
{
	return ((const uint32_t *)out)[i];
}

static inline uint32_t one(uint32_t key)
{
	uint32_t hop = 0;
	return rte_lpm_lookup(lpm, key, &hop) == 0 ? hop : 0;
}

static void bulk(const void *keys, unsigned n, void *out)
{
	rte_lpm_lookup_bulk(lpm, keys, out, n);
}

static void x4(const void *keys, unsigned n, void *out)
{
	const uint32_t *k = keys;
	uint32_t *o = out;
	unsigned i = 0;
	for (; i + 4 <= n; i += 4) {
		xmm_t four;
		memcpy(&four, k + i, sizeof(four));
		rte_lpm_lookupx4(lpm, four, o + i, 0);
	}
	for (; i < n; i++)
		o[i] = one(k[i]);
}

static void single(const void *keys, unsigned n, void *out)
{
	const uint32_t *k = keys;
	uint32_t *o = out;
	for (unsigned i = 0; i < n; i++)
		o[i] = one(k[i]);
}

static void dependent(const void *keys, unsigned n, void *out)
{
	const uint32_t *k = keys, zero = (uint32_t)peer_zero;
	uint32_t *o = out, last = 0;
	for (unsigned i = 0; i < n; i++)
		o[i] = last = one(k[i] ^ (last & zero));
}

static const struct function functions[] = {
	{ "bulk", { bulk, NULL, NULL }, NULL, raw_hop },
	{ "x4", { x4, NULL, NULL }, NULL, plain_hop },
	{ "one", { NULL, single, dependent }, NULL, plain_hop },
};

/* A whole burst, of which less than four are left over: those are asked along with strangers. */
static inline void in_fours(const uint32_t *addrs, uint32_t *hops, unsigned n)
{
	unsigned i = 0;
	for (; i + 4 <= n; i += 4) {
		xmm_t four;
		memcpy(&four, addrs + i, sizeof(four));
		rte_lpm_lookupx4(lpm, four, hops + i, 0);
	}
	for (; i < n; i++)
		hops[i] = one(addrs[i]);
}

static inline void in_bulk(const uint32_t *addrs, uint32_t *hops, unsigned n)
{
	rte_lpm_lookup_bulk(lpm, addrs, hops, n);
	for (unsigned i = 0; i < n; i++)
		hops[i] = hops[i] & RTE_LPM_LOOKUP_SUCCESS ? hops[i] & 0x00ffffff : 0;
}

static void forward_x4(struct router *router, struct rte_mbuf **frames, unsigned n)
{
	forward_burst(router, frames, n, in_fours);
}

static void forward_bulk(struct router *router, struct rte_mbuf **frames, unsigned n)
{
	forward_burst(router, frames, n, in_bulk);
}

static const struct forward forwards[] = {
	{ "x4", forward_x4, NULL },
	{ "bulk", forward_bulk, NULL },
};

/* Parents come before children, so a later route overwrites what it is more specific than. */
static int fill(const struct table *table)
{
	uint32_t chunks = 0;
	for (size_t i = 0; i < table->count; i++) {
		const struct route *r = &table->routes[i];
		const struct rte_lpm_tbl_entry leaf = {
			.next_hop = r->hop & 0x00ffffff, .valid = 1, .valid_group = 0, .depth = r->len & 63,
		};
		struct rte_lpm_tbl_entry *top = &lpm->tbl24[r->v4 >> 8];
		if (r->len <= 24) {
			for (uint32_t at = 0; at < 1u << (24 - r->len); at++)
				top[at] = leaf;
			continue;
		}
		if (!top->valid_group) {
			if (chunks == CHUNKS)
				return -ENOSPC;
			struct rte_lpm_tbl_entry under = *top;
			/* In a chunk the bit says that the chunk is used. */
			under.valid_group = 1;
			for (unsigned at = 0; at < RTE_LPM_TBL8_GROUP_NUM_ENTRIES; at++)
				lpm->tbl8[chunks * RTE_LPM_TBL8_GROUP_NUM_ENTRIES + at] = under;
			*top = (struct rte_lpm_tbl_entry){
				.next_hop = chunks++ & 0x00ffffff, .valid = 1, .valid_group = 1, .depth = 0,
			};
		}
		struct rte_lpm_tbl_entry low = leaf;
		low.valid_group = 1;
		struct rte_lpm_tbl_entry *chunk =
			&lpm->tbl8[top->next_hop * RTE_LPM_TBL8_GROUP_NUM_ENTRIES + (r->v4 & 0xff)];
		for (uint32_t at = 0; at < 1u << (32 - r->len); at++)
			chunk[at] = low;
	}
	return 0;
}

static int fixed(const struct route *r)
{
	(void)r;
	return -ENOTSUP;
}

const struct engine lpm_engine = {
	"rte_lpm", 4, 1, functions, RTE_DIM(functions), create, add, del, bytes,
	forwards, RTE_DIM(forwards), NULL,
};

const struct engine lpm_filled_engine = {
	"rte_lpm_filled", 4, 0, functions, RTE_DIM(functions), create, fixed, fixed, bytes,
	forwards, RTE_DIM(forwards), fill,
};
