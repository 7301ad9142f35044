/* rte_fib: DIR-24-8 without lengths, of two-byte and of four-byte entries. */
#include <rte_common.h>
#include <rte_fib.h>

#include "loop.h"
#include "peer.h"

static struct rte_fib *fib;

static int create(const struct table *table, int socket, enum rte_fib_dir24_8_nh_sz size)
{
	struct rte_fib_conf config = {
		.type = RTE_FIB_DIR24_8,
		.default_nh = 0,
		.max_routes = (int)table->count + MORE_ROUTES,
		/* One bit of an entry says which kind it is: 15 bits number the chunks of two-byte ones. */
		.dir24_8 = { size, size == RTE_FIB_DIR24_8_2B ? (1 << 15) - 1 : 1 << 16 },
	};
	fib = rte_fib_create("peer", socket, &config);
	return fib ? 0 : -1;
}

static int create_2b(const struct table *table, int socket)
{
	return create(table, socket, RTE_FIB_DIR24_8_2B);
}

static int create_4b(const struct table *table, int socket)
{
	return create(table, socket, RTE_FIB_DIR24_8_4B);
}

static int add(const struct route *r)
{
	return rte_fib_add(fib, r->v4, r->len, r->hop);
}

static int del(const struct route *r)
{
	return rte_fib_delete(fib, r->v4, r->len);
}

static uint64_t bytes_2b(const struct table *table)
{
	return (2ull << 24) + blocks_with_longer(table, 24) * 512;
}

static uint64_t bytes_4b(const struct table *table)
{
	return (4ull << 24) + blocks_with_longer(table, 24) * 1024;
}

static uint32_t hop(const void *out, unsigned i)
{
	return (uint32_t)((const uint64_t *)out)[i];
}

/* The library takes keys that are not const, and does not write to them. */
static inline void call(const uint32_t *keys, uint64_t *out, int n)
{
	rte_fib_lookup_bulk(fib, (uint32_t *)(uintptr_t)keys, out, n);
}

static void bulk(const void *keys, unsigned n, void *out)
{
	call(keys, out, (int)n);
}

static void single(const void *keys, unsigned n, void *out)
{
	const uint32_t *k = keys;
	uint64_t *o = out;
	for (unsigned i = 0; i < n; i++)
		call(k + i, o + i, 1);
}

static void dependent(const void *keys, unsigned n, void *out)
{
	const uint32_t *k = keys;
	const uint64_t zero = peer_zero;
	uint64_t *o = out, last = 0;
	for (unsigned i = 0; i < n; i++) {
		uint32_t key = k[i] ^ (uint32_t)(last & zero);
		call(&key, o + i, 1);
		last = o[i];
	}
}

static int macro(void)
{
	return rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO);
}

static int inlined(void)
{
	return rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_SCALAR_INLINE);
}

static int uni(void)
{
	return rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_SCALAR_UNI);
}

static int avx512(void)
{
	return rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512);
}

static const struct function functions[] = {
	{ "macro", { bulk, single, dependent }, macro, hop },
	{ "inline", { bulk, single, dependent }, inlined, hop },
	{ "uni", { bulk, single, dependent }, uni, hop },
	{ "avx512", { bulk, single, dependent }, avx512, hop },
};

static inline void in_bulk(const uint32_t *addrs, uint32_t *hops, unsigned n)
{
	uint64_t found[MOST_BURST];
	call(addrs, found, (int)n);
	for (unsigned i = 0; i < n; i++)
		hops[i] = (uint32_t)found[i];
}

static void forward(struct router *router, struct rte_mbuf **frames, unsigned n)
{
	forward_burst(router, frames, n, in_bulk);
}

static const struct forward forwards[] = {
	{ "macro", forward, macro },
	{ "inline", forward, inlined },
	{ "uni", forward, uni },
	{ "avx512", forward, avx512 },
};

const struct engine fib2b_engine = {
	"rte_fib_2b", 4, 0, functions, RTE_DIM(functions), create_2b, add, del, bytes_2b,
	forwards, RTE_DIM(forwards), NULL,
};

const struct engine fib4b_engine = {
	"rte_fib_4b", 4, 0, functions, RTE_DIM(functions), create_4b, add, del, bytes_4b,
	forwards, RTE_DIM(forwards), NULL,
};
