/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Internal links of a cluster, as the graph has them too (crates/cluster/src/fabric/links.rs): a line of 8 words a node.
 */

/* Words of a link. */
enum { BUSY_ALL, BUSY_TRANSIT, PORT, NS_PER_BYTE, LIMIT, DROPPED_TRANSIT, DROPPED_LOCAL, BYTES };

/* Occupies a link for a time: from now on, or from when it is free. Where another CPU was faster, behind its packet. */
INLINE void occupy(u64 *busy, u64 until, u64 now, u64 cost)
{
	if ((long long)(until - now) < 0 && __sync_val_compare_and_swap(busy, until, now + cost) == until)
		return;
	__sync_fetch_and_add(busy, cost);
}
