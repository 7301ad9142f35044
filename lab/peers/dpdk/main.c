/*
 * DPDK's lookup libraries behind the protocol of lab/peers/README.md.
 *
 *     peer ENGINE[:FUNCTION] 4|6 TABLEFILE
 *
 * A library with several lookup functions is tried with each when keys arrive, mode by mode, and the
 * best is used; FUNCTION fixes one. The tables lie in memory of our own on 2 MiB pages where the
 * system gives them (madvise), as DPDK's own would on reserved ones: an external heap of its allocator.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_version.h>

#include "peer.h"
#include "table.h"

#define HUGE_PAGE (2ul << 20)
#define TRIAL_ROUNDS 7
#define TRIAL_NS 8000000ull

volatile uint64_t peer_zero;

static const struct engine *const engines[] = {
	&lpm_engine, &lpm_filled_engine, &fib2b_engine, &fib4b_engine, &lpm6_engine, &fib6_engine,
};
static const char *const mode_names[MODES] = { "batch", "single", "dependent" };

const struct engine *engine;
static struct table table, changes;
static size_t change_at;
static FILE *replies;
static void *keys;
static size_t key_count, key_at, key_size;
/* Answers of a chunk; eight bytes each are enough for all libraries. */
static uint64_t out[CHUNK];
static const struct function *chosen[MODES];

void reply(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vfprintf(replies, format, args);
	va_end(args);
	fputc('\n', replies);
	fflush(replies);
}

uint64_t now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Memory on huge pages where they can be had. */
static void *map(size_t bytes)
{
	const size_t whole = (bytes + 2 * HUGE_PAGE) & ~(HUGE_PAGE - 1);
	char *at = mmap(NULL, whole, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	at = (char *)(((uintptr_t)at + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	const char *pages = getenv("PEER_PAGES");
	madvise(at, whole - HUGE_PAGE, pages && !strcmp(pages, "4k") ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
	return at;
}

/* How much of this process lies on huge pages, in KiB. */
static unsigned long huge_kib(void)
{
	FILE *in = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	unsigned long kib = 0;
	while (in && fgets(line, sizeof(line), in))
		if (sscanf(line, "AnonHugePages: %lu", &kib) == 1)
			break;
	if (in)
		fclose(in);
	return kib;
}

/*
 * DPDK's environment without reserved pages, devices or files. It pins this thread to one core,
 * which is not its to decide here, so that is undone.
 */
static int start_dpdk(void)
{
	char *args[] = { "peer", "--no-huge", "--no-shconf", "-m", "64", "--no-pci", "--no-telemetry",
			 "--log-level=error", "--force-max-simd-bitwidth=512" };
	cpu_set_t cores;
	sched_getaffinity(0, sizeof(cores), &cores);
	int done = rte_eal_init(RTE_DIM(args), args);
	sched_setaffinity(0, sizeof(cores), &cores);
	return done < 0 ? -1 : 0;
}

/* A heap of our memory; returns the socket number by which libraries ask for it. */
static int make_heap(size_t bytes)
{
	bytes = (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	void *memory = map(bytes);
	if (!memory || rte_malloc_heap_create("peer") != 0)
		return -1;
	if (rte_malloc_heap_memory_add("peer", memory, bytes, NULL, 0, HUGE_PAGE) != 0)
		return -1;
	return rte_malloc_heap_get_socket("peer");
}

/* A default route in the form that the engine takes. */
static int each_half(int (*op)(const struct route *), const struct route *route)
{
	int failed = 0, code;
	for (unsigned half = 0; half < 2; half++) {
		struct route r = *route;
		r.len = 1;
		r.addr[0] = half ? 0x80 : 0;
		r.v4 = half ? 0x80000000 : 0;
		if (!table_has(&table, r.addr, 1) && (code = op(&r)) != 0)
			failed = code;
	}
	return failed;
}

static int change(int (*op)(const struct route *), const struct route *route)
{
	return engine->no_default && route->len == 0 ? each_half(op, route) : op(route);
}

static size_t load(int socket)
{
	size_t refused = 0;
	if (engine->create(&table, socket) != 0)
		return SIZE_MAX;
	if (engine->fill)
		return engine->fill(&table) == 0 ? 0 : SIZE_MAX;
	for (size_t i = 0; i < table.count; i++)
		refused += change(engine->add, &table.routes[i]) != 0;
	return refused;
}

static unsigned span(enum mode mode)
{
	return mode == BATCH ? BULK : CHUNK;
}

/* Looks keys up for at least `limit` nanoseconds, going on where it was. */
static uint64_t spin(const struct function *f, enum mode mode, uint64_t limit, uint64_t *ns,
		     uint64_t *cpu)
{
	chunk_fn *chunk = f->chunk[mode];
	if (f->choose)
		f->choose();
	const uint64_t cpu_start = now(CLOCK_THREAD_CPUTIME_ID), start = now(CLOCK_MONOTONIC);
	uint64_t lookups = 0;
	do {
		/* The clock is asked every 4096 keys. */
		for (unsigned done = 0; done < 4096;) {
			size_t n = span(mode);
			if (n > key_count - key_at)
				n = key_count - key_at;
			chunk((const char *)keys + key_at * key_size, (unsigned)n, out);
			key_at += n;
			if (key_at == key_count)
				key_at = 0;
			done += (unsigned)n;
			lookups += n;
		}
		*ns = now(CLOCK_MONOTONIC) - start;
	} while (*ns < limit);
	*cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu_start;
	return lookups;
}

/*
 * Picks the fastest function for a mode: the best of short turns in alternation, in CPU time. Others on
 * the machine only ever slow a turn down, and by more than the functions differ.
 */
static void choose(enum mode mode, const char *fixed)
{
	double best = 0;
	chosen[mode] = NULL;
	for (unsigned round = 0; round < TRIAL_ROUNDS; round++)
		for (unsigned i = 0; i < engine->function_count; i++) {
			const struct function *f = &engine->functions[i];
			uint64_t ns, cpu;
			if (!f->chunk[mode] || (fixed && f->choose && strcmp(fixed, f->name) != 0) ||
			    (f->choose && f->choose() != 0))
				continue;
			const double rate = (double)spin(f, mode, TRIAL_NS, &ns, &cpu) / (double)cpu;
			if (rate > best) {
				best = rate;
				chosen[mode] = f;
			}
		}
}

static void set_keys(const char *file, const char *fixed)
{
	FILE *in = fopen(file, "rb");
	if (!in || fseek(in, 0, SEEK_END) != 0) {
		reply("{\"error\":\"cannot read the keys\"}");
		if (in)
			fclose(in);
		return;
	}
	const size_t bytes = (size_t)ftell(in);
	rewind(in);
	/* The map of the last keys stays: a few a run, and pages that nobody touches again. */
	keys = map(bytes);
	key_count = keys && fread(keys, 1, bytes, in) == bytes ? bytes / key_size : 0;
	key_at = 0;
	fclose(in);
	if (key_count == 0) {
		reply("{\"error\":\"no keys in the file\"}");
		return;
	}
	for (int mode = 0; mode < MODES; mode++)
		choose((enum mode)mode, fixed);
	if (!chosen[BATCH]) {
		key_count = 0;
		reply("{\"error\":\"this machine lacks the function\"}");
		return;
	}
	reply("{\"ok\":true,\"keys\":%zu,\"functions\":{\"batch\":\"%s\",\"single\":\"%s\",\"dependent\":\"%s\"}}",
	      key_count, chosen[BATCH]->name, chosen[SINGLE]->name, chosen[DEPENDENT]->name);
}

/* Every key by the chosen function, in batches. */
static void answers(const char *file)
{
	FILE *to = fopen(file, "wb");
	const struct function *f = chosen[BATCH];
	int failed = !to || key_count == 0;
	if (!failed && f->choose)
		f->choose();
	for (size_t at = 0; !failed && at < key_count; at += BULK) {
		const unsigned n = (unsigned)(key_count - at < BULK ? key_count - at : BULK);
		uint32_t hops[BULK];
		f->chunk[BATCH]((const char *)keys + at * key_size, n, out);
		for (unsigned i = 0; i < n; i++)
			hops[i] = f->hop(out, i);
		failed = fwrite(hops, sizeof(uint32_t), n, to) != n;
	}
	if (to)
		failed |= fclose(to) != 0;
	reply(failed ? "{\"error\":\"no answers\"}" : "{\"ok\":true}");
}

static void turn(const char *name, uint64_t ms)
{
	for (int mode = 0; mode < MODES; mode++) {
		if (strcmp(name, mode_names[mode]) != 0)
			continue;
		if (key_count == 0)
			break;
		uint64_t ns, cpu;
		const uint64_t lookups = spin(chosen[mode], (enum mode)mode, ms * 1000000, &ns, &cpu);
		reply("{\"lookups\":%lu,\"ns\":%lu,\"cpu_ns\":%lu}", lookups, ns, cpu);
		return;
	}
	reply("{\"error\":\"no such mode, or no keys\"}");
}

static void set_changes(const char *file)
{
	if (changes.routes)
		table_free(&changes);
	change_at = 0;
	if (changes_read(file, table.family, &changes) != 0 || changes.count == 0) {
		reply("{\"error\":\"cannot read the changes\"}");
		return;
	}
	reply("{\"ok\":true,\"changes\":%zu}", changes.count);
}

/* Makes the next change; whether the library refused it. A route that is not there is withdrawn already. */
static inline uint64_t next_change(void)
{
	const struct route *r = &changes.routes[change_at];
	change_at = change_at + 1 == changes.count ? 0 : change_at + 1;
	if (r->hop != 0)
		return change(engine->add, r) != 0;
	const int code = change(engine->del, r);
	return code != 0 && code != -ENOENT && code != -EINVAL;
}

/* Half of the time without a look at single changes, the other half with each timed and written down. */
static void update(uint64_t ms, const char *file)
{
	FILE *to = fopen(file, "wb");
	if (!to || changes.count == 0) {
		reply("{\"error\":\"no changes\"}");
		if (to)
			fclose(to);
		return;
	}
	const uint64_t half = ms * 500000;
	const uint64_t cpu_start = now(CLOCK_THREAD_CPUTIME_ID), start = now(CLOCK_MONOTONIC);
	uint64_t updates = 0, failed = 0, ns;
	do {
		for (unsigned i = 0; i < 16; i++)
			failed += next_change();
		updates += 16;
		ns = now(CLOCK_MONOTONIC) - start;
	} while (ns < half);
	const uint64_t cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu_start;

	/* Room for all that fit in the time is taken before; what is beyond it is not timed. */
	const size_t room = (size_t)(2 * updates) + 4096;
	uint32_t *each = malloc(room * sizeof(*each));
	size_t timed = 0;
	uint64_t last = now(CLOCK_MONOTONIC), from = last;
	while (each && timed < room && last - from < half) {
		failed += next_change();
		const uint64_t at = now(CLOCK_MONOTONIC);
		each[timed++] = at - last < UINT32_MAX ? (uint32_t)(at - last) : UINT32_MAX;
		last = at;
	}
	int bad = !each || fwrite(each, sizeof(*each), timed, to) != timed;
	bad |= fclose(to) != 0;
	free(each);
	if (bad)
		reply("{\"error\":\"cannot write the times\"}");
	else
		reply("{\"updates\":%lu,\"ns\":%lu,\"cpu_ns\":%lu,\"timed\":%zu,\"failed\":%lu}", updates,
		      ns, cpu, timed, failed);
}

/* Up to the end of the list, so that every change was made. */
static void rest(void)
{
	uint64_t failed = 0;
	while (change_at != 0)
		failed += next_change();
	reply("{\"ok\":true,\"failed\":%lu}", failed);
}

static void serve(const char *fixed, int socket)
{
	char *line = NULL;
	size_t room = 0;
	while (getline(&line, &room, stdin) > 0) {
		char file[4096], mode[16];
		unsigned long ms;
		unsigned len;
		if (sscanf(line, "keys %4095s", file) == 1)
			set_keys(file, fixed);
		else if (sscanf(line, "answers %4095s", file) == 1)
			answers(file);
		else if (sscanf(line, "turn %15s %lu", mode, &ms) == 2)
			turn(mode, ms);
		else if (sscanf(line, "changes %4095s", file) == 1)
			set_changes(file);
		else if (sscanf(line, "update %lu %4095s", &ms, file) == 2)
			update(ms, file);
		else if (sscanf(line, "leaves %4095s", file) == 1)
			loop_leaves(file, socket);
		else if (sscanf(line, "frames %u %4095s", &len, file) == 2)
			loop_frames(file, len, socket);
		else if (sscanf(line, "forwarded %4095s", file) == 1)
			loop_forwarded(file);
		else if (sscanf(line, "forward %lu", &ms) == 1)
			loop_turn(1, ms);
		else if (sscanf(line, "generate %lu", &ms) == 1)
			loop_turn(0, ms);
		else if (!strcmp(line, "rest\n"))
			rest();
		else if (!strcmp(line, "bytes\n"))
			reply("{\"bytes\":%lu}", engine->bytes(&table));
		else if (!strcmp(line, "quit\n"))
			break;
		else
			reply("{\"error\":\"no such command\"}");
	}
	free(line);
}

int main(int argc, char **argv)
{
	/* Nobody is left to answer when whoever started us is gone. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Whatever a library prints goes to standard error; replies keep the pipe to themselves. */
	replies = fdopen(dup(STDOUT_FILENO), "w");
	if (!replies || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return 1;
	if (argc != 4) {
		fprintf(stderr, "usage: %s ENGINE[:FUNCTION] 4|6 TABLEFILE\n", argv[0]);
		return 2;
	}
	char *fixed = strchr(argv[1], ':');
	if (fixed)
		*fixed++ = 0;
	const int family = atoi(argv[2]);
	for (size_t i = 0; i < RTE_DIM(engines); i++)
		if (!strcmp(engines[i]->name, argv[1]) && engines[i]->family == family)
			engine = engines[i];
	if (!engine) {
		reply("{\"error\":\"no such algorithm for this family\"}");
		return 2;
	}
	key_size = family == 4 ? 4 : 16;
	if (table_read(argv[3], family, &table) != 0) {
		reply("{\"error\":\"cannot read the table\"}");
		return 1;
	}
	int socket;
	/* Enough for every structure with its route store, which takes some 500 bytes a route. */
	const size_t heap = ((family == 4 ? 288ul : 512ul) << 20) + table.count * 704;
	if (start_dpdk() != 0 || (socket = make_heap(heap)) < 0) {
		reply("{\"error\":\"DPDK does not start: %s\"}", rte_strerror(rte_errno));
		return 1;
	}
	const uint64_t start = now(CLOCK_MONOTONIC);
	const size_t refused = load(socket);
	const double build_ms = (double)(now(CLOCK_MONOTONIC) - start) / 1e6;
	if (refused == SIZE_MAX) {
		reply("{\"error\":\"the table cannot be made: %s\"}", rte_strerror(rte_errno));
		return 1;
	}
	reply("{\"name\":\"%s\",\"version\":\"%s\",\"routes\":%zu,\"refused\":%zu,\"build_ms\":%.3f,"
	      "\"bytes\":%lu,\"note\":\"%lu MiB on 2 MiB pages%s\"}",
	      engine->name, rte_version(), table.count, refused, build_ms, engine->bytes(&table),
	      huge_kib() >> 10, engine->no_default ? "; a default route goes in as two /1" : "");
	serve(fixed, socket);
	return 0;
}
