/* Reads the text form of a table: `PREFIX HOP` a line, hops from 1; in changes 0 withdraws. */
#include "table.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse(char *line, int family, struct route *route)
{
	char *slash = strchr(line, '/'), *blank = strchr(line, ' ');
	if (!slash || !blank || slash > blank)
		return -1;
	*slash = *blank = 0;
	memset(route, 0, sizeof(*route));
	if (inet_pton(family == 4 ? AF_INET : AF_INET6, line, route->addr) != 1)
		return -1;
	uint32_t word;
	memcpy(&word, route->addr, 4);
	route->v4 = ntohl(word);
	route->len = (uint8_t)strtoul(slash + 1, NULL, 10);
	route->hop = (uint32_t)strtoul(blank + 1, NULL, 10);
	return 0;
}

static int read_lines(const char *file, int family, uint32_t least_hop, struct table *table)
{
	FILE *in = fopen(file, "r");
	if (!in)
		return -1;
	size_t room = 1 << 16;
	table->family = family;
	table->count = 0;
	table->routes = malloc(room * sizeof(*table->routes));
	char line[256];
	int bad = !table->routes;
	while (!bad && fgets(line, sizeof(line), in)) {
		if (table->count == room) {
			room *= 2;
			void *more = realloc(table->routes, room * sizeof(*table->routes));
			if (!more) {
				bad = 1;
				break;
			}
			table->routes = more;
		}
		bad = parse(line, family, &table->routes[table->count]) != 0 ||
		      table->routes[table->count].hop < least_hop;
		table->count += !bad;
	}
	fclose(in);
	if (bad)
		table_free(table);
	return bad ? -1 : 0;
}

int table_read(const char *file, int family, struct table *table)
{
	return read_lines(file, family, 1, table);
}

int changes_read(const char *file, int family, struct table *changes)
{
	return read_lines(file, family, 0, changes);
}

void table_free(struct table *table)
{
	free(table->routes);
	table->routes = NULL;
	table->count = 0;
}

int table_has(const struct table *table, const uint8_t *addr, unsigned len)
{
	for (size_t i = 0; i < table->count; i++)
		if (table->routes[i].len == len && memcmp(table->routes[i].addr, addr, 16) == 0)
			return 1;
	return 0;
}

uint64_t blocks_with_longer(const struct table *table, unsigned len)
{
	/* The table is sorted, so equal blocks stand together. */
	const unsigned whole = len / 8;
	const uint8_t *last = NULL;
	uint64_t count = 0;
	for (size_t i = 0; i < table->count; i++) {
		const struct route *r = &table->routes[i];
		if (r->len > len && (!last || memcmp(last, r->addr, whole) != 0)) {
			last = r->addr;
			count++;
		}
	}
	return count;
}
