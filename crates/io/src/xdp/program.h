/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * What all programs share. They are compiled with `clang-14 -O2 -target bpf -mcpu=v3 -c`, and their objects are shipped; a
 * test compares the two where clang is. `extern` names, and each CONSTANT, are put in by the loader (load.rs): part of a
 * map, a map, or a number. The verifier knows these numbers, so a branch on one costs nothing.
 */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INLINE static inline __attribute__((always_inline))
#define HELPER static __attribute__((unused))

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* A number that the loader puts in: nothing that the compiler can reason about. */
#define CONSTANT(name) ({ u64 number; asm("%0 = " #name " ll" : "=r"(number)); number; })

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

HELPER void *(*map_lookup)(void *map, const void *key) = (void *)1;
HELPER u64 (*time_ns)(void) = (void *)5;
HELPER u32 (*random)(void) = (void *)7;
HELPER u32 (*processor)(void) = (void *)8;
HELPER long (*tail_call)(void *context, void *programs, u32 index) = (void *)12;
HELPER u64 (*process)(void) = (void *)14;
HELPER long (*adjust_head)(struct xdp_md *context, int delta) = (void *)44;
HELPER long (*redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
HELPER long (*adjust_tail)(struct xdp_md *context, int delta) = (void *)65;
HELPER long (*fib_lookup)(void *context, void *request, int bytes, u32 flags) = (void *)69;
HELPER u64 (*ticks)(void) = (void *)118;
HELPER long (*ring_output)(void *ring, void *record, u64 bytes, u64 flags) = (void *)130;
HELPER u64 (*coarse_time_ns)(void) = (void *)160;
HELPER long (*load_bytes)(struct xdp_md *context, u32 offset, void *to, u32 bytes) = (void *)189;

/* What stands behind the MACs, as read from the frame. */
enum { IP4 = 0x0008, IP6 = 0xdd86 };
/* Words a CPU of what a port counts by its ingress (forward/received.rs). */
enum { SEEN = 16 };

enum { UDP = 17 };

enum { XDP_ABORTED = 0, XDP_DROP = 1, XDP_PASS = 2, XDP_REDIRECT = 4 };

/* The bytes at a place, whatever type is there, aligned or not. */
#define ALIAS __attribute__((may_alias))
#define AT16(place) (*(u16 ALIAS *)(place))
#define AT32(place) (*(u32 ALIAS *)(place))
#define AT64(place) (*(u64 ALIAS *)(place))

#define FRAME(context) ((u8 *)(u64)(context)->data)
#define FRAME_END(context) ((u8 *)(u64)(context)->data_end)

/* Whether a frame has exactly so many bytes. Two comparisons: the verifier learns a length from the first alone. */
INLINE int is_long(struct xdp_md *context, u64 bytes)
{
	u64 frame_bytes;

	if (FRAME(context) + bytes > FRAME_END(context))
		return 0;
	frame_bytes = FRAME_END(context) - FRAME(context);
	asm("" : "+r"(frame_bytes));
	return frame_bytes == bytes;
}
