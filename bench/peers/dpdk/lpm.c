/* rte_lpm: DIR-24-8 with the length in each entry. Its functions are inlined here. */
#include <string.h>

#include <rte_lpm.h>

#include "peer.h"

static struct rte_lpm *lpm;

static int create(const struct table *table, int socket)
{
	const struct rte_lpm_config config = {
		.max_rules = (uint32_t)table->count + MORE_ROUTES,
		.number_tbl8s = 1 << 16,
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

const struct engine lpm_engine = {
	"rte_lpm", 4, 1, functions, RTE_DIM(functions), create, add, del, bytes,
};
