/*
 * rte_fib6: a trie of 24 bits, then 8 at a time, with four-byte entries. Two-byte entries have room
 * for 15 bits of chunk numbers, which real tables exceed.
 */
#include <string.h>

#include <rte_common.h>
#include <rte_fib6.h>

#include "peer.h"

static struct rte_fib6 *fib;

static int create(const struct table *table, int socket)
{
	struct rte_fib6_conf config = {
		.type = RTE_FIB6_TRIE,
		.default_nh = 0,
		.max_routes = (int)table->count + MORE_ROUTES,
		.trie = { RTE_FIB6_TRIE_4B, 1 << 18 },
	};
	fib = rte_fib6_create("peer", socket, &config);
	return fib ? 0 : -1;
}

static int add(const struct route *r)
{
	return rte_fib6_add(fib, r->addr, r->len, r->hop);
}

static int del(const struct route *r)
{
	return rte_fib6_delete(fib, r->addr, r->len);
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
	return (uint32_t)((const uint64_t *)out)[i];
}

/* The library takes keys that are not const, and does not write to them. */
static inline void call(const uint8_t *keys, uint64_t *out, int n)
{
	rte_fib6_lookup_bulk(fib, (uint8_t (*)[16])(uintptr_t)keys, out, n);
}

static void bulk(const void *keys, unsigned n, void *out)
{
	call(keys, out, (int)n);
}

static void single(const void *keys, unsigned n, void *out)
{
	const uint8_t(*k)[16] = keys;
	uint64_t *o = out;
	for (unsigned i = 0; i < n; i++)
		call(k[i], o + i, 1);
}

static void dependent(const void *keys, unsigned n, void *out)
{
	const uint8_t(*k)[16] = keys;
	const uint64_t zero = peer_zero;
	uint64_t *o = out, key[2], last = 0;
	for (unsigned i = 0; i < n; i++) {
		memcpy(key, k[i], 16);
		key[0] ^= last & zero;
		call((const uint8_t *)key, o + i, 1);
		last = o[i];
	}
}

static int scalar(void)
{
	return rte_fib6_select_lookup(fib, RTE_FIB6_LOOKUP_TRIE_SCALAR);
}

static int avx512(void)
{
	return rte_fib6_select_lookup(fib, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512);
}

static const struct function functions[] = {
	{ "scalar", { bulk, single, dependent }, scalar, hop },
	{ "avx512", { bulk, single, dependent }, avx512, hop },
};

const struct engine fib6_engine = {
	"rte_fib6", 6, 0, functions, RTE_DIM(functions), create, add, del, bytes,
	NULL, 0, NULL,
};
