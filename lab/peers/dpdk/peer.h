/*
 * What the engines of this program share: routes, keys, and the row by which main.c drives an engine.
 *
 * An engine answers chunks of keys in the form that its library returns. Turning answers into hops
 * (0 for none) happens outside all timing, by `hop`.
 */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct route {
	uint8_t addr[16]; /* network order; IPv4 in the first four bytes */
	uint32_t v4;      /* host order */
	uint8_t len;
	uint32_t hop;
};

struct table {
	struct route *routes;
	size_t count;
	int family;
};

/* Answers `n` keys (uint32_t host order, or 16 bytes network order each) into `out`. */
typedef void chunk_fn(const void *keys, unsigned n, void *out);

enum mode { BATCH, SINGLE, DEPENDENT, MODES };

/* One lookup function of a library, in up to three modes. */
struct function {
	const char *name;
	chunk_fn *chunk[MODES];
	int (*choose)(void); /* makes it the one that is used; 0 if this machine has it; may be NULL */
	uint32_t (*hop)(const void *out, unsigned i);
};

struct forward;

struct engine {
	const char *name;
	int family;
	int no_default; /* refuses length 0: the default route goes in as two of length 1 */
	const struct function *functions;
	unsigned function_count;
	int (*create)(const struct table *table, int socket);
	int (*add)(const struct route *route);
	int (*del)(const struct route *route);
	uint64_t (*bytes)(const struct table *table);
	/* Lookups in the loop of loop.h, where it is a router too. */
	const struct forward *forwards;
	unsigned forward_count;
	/* The whole table at once, where there is a faster way than route by route. */
	int (*fill)(const struct table *table);
};

extern const struct engine lpm_engine, lpm_filled_engine, lpm6_engine, fib2b_engine, fib4b_engine, fib6_engine;

/* The one that was asked for. */
extern const struct engine *engine;

/* Answers a command: one line. */
void reply(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Nanoseconds by a clock. */
uint64_t now(clockid_t clock);

/* The commands of loop.c; memory is of this socket. */
void loop_leaves(const char *file, int socket);
void loop_frames(const char *file, unsigned len, int socket);
void loop_forwarded(const char *file);
void loop_turn(int whole, uint64_t ms);

/* Zero, but the compiler cannot know: what makes one lookup wait for another. */
extern volatile uint64_t peer_zero;

/* How many blocks of addresses of length `len` hold longer routes: chunks below that level. */
uint64_t blocks_with_longer(const struct table *table, unsigned len);

/* Routes beyond those of the table that updates may bring. */
#define MORE_ROUTES 16384

/* Keys of a batch: what one call to a library is given. */
#define BULK 64
/* Keys of a chunk in the other modes. */
#define CHUNK 1024

#endif
