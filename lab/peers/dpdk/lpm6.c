/* rte_lpm6: 24 bits, then 8 at a time. */
#include <string.h>

#include <rte_common.h>
#include <rte_lpm6.h>

#include "peer.h"

static struct rte_lpm6 *lpm;

static int create(const struct table *table, int socket)
{
	const struct rte_lpm6_config config = {
		.max_rules = (uint32_t)table->count + MORE_ROUTES,
		.number_tbl8s = 1 << 17,
	};
	lpm = rte_lpm6_create("peer", socket, &config);
	return lpm ? 0 : -1;
}

static int add(const struct route *r)
{
	return rte_lpm6_add(lpm, r->addr, r->len, r->hop);
}

static int del(const struct route *r)
{
	return rte_lpm6_delete(lpm, r->addr, r->len);
}

static uint64_t bytes(const struct table *table)
{
	uint64_t chunks = 0;
	for (unsigned len = 24; len < 128; len += 8)
		chunks += blocks_with_longer(table, len);
	return (4ull << 24) + chunks * 1024;
}

static uint32_t hop(const void *out, unsigned i)
{
	int32_t found = ((const int32_t *)out)[i];
	return found < 0 ? 0 : (uint32_t)found;
}

static void bulk(const void *keys, unsigned n, void *out)
{
	/* The library does not write to the keys; its type only fails to say so. */
	rte_lpm6_lookup_bulk_func(lpm, (uint8_t (*)[16])(uintptr_t)keys, out, n);
}

static inline int32_t one(const uint8_t *key)
{
	uint32_t found;
	return rte_lpm6_lookup(lpm, key, &found) == 0 ? (int32_t)found : -1;
}

static void single(const void *keys, unsigned n, void *out)
{
	const uint8_t(*k)[16] = keys;
	int32_t *o = out;
	for (unsigned i = 0; i < n; i++)
		o[i] = one(k[i]);
}

static void dependent(const void *keys, unsigned n, void *out)
{
	const uint8_t(*k)[16] = keys;
	const uint64_t zero = peer_zero;
	int32_t *o = out;
	uint64_t key[2], last = 0;
	for (unsigned i = 0; i < n; i++) {
		memcpy(key, k[i], 16);
		key[0] ^= last & zero;
		o[i] = one((const uint8_t *)key);
		last = (uint32_t)o[i];
	}
}

static const struct function functions[] = {
	{ "bulk", { bulk, NULL, NULL }, NULL, hop },
	{ "one", { NULL, single, dependent }, NULL, hop },
};

const struct engine lpm6_engine = {
	"rte_lpm6", 6, 1, functions, RTE_DIM(functions), create, add, del, bytes,
	NULL, 0, NULL,
};
