/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Programs of the tests. */

#include "program.h"

static long (*vlan_push)(void *buffer, u16 protocol, u16 tag) = (void *)18;

int pass(struct xdp_md *context)
{
	return XDP_PASS;
}

/* Reads where nothing was checked: the verifier rejects it. */
int wild(struct xdp_md *context)
{
	return *FRAME(context);
}

/* At the egress of an interface: VLAN 5 for each packet. */
int push_tag(void *buffer)
{
	vlan_push(buffer, 0x0081, 5);
	return 0;
}
