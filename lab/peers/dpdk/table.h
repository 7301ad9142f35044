/* Tables from text; see table.c. */
#ifndef TABLE_H
#define TABLE_H

#include "peer.h"

/* 0, or -1 when the file cannot be read or a line is none. */
int table_read(const char *file, int family, struct table *table);
/* The same for changes: hop 0 withdraws. */
int changes_read(const char *file, int family, struct table *changes);
void table_free(struct table *table);
int table_has(const struct table *table, const uint8_t *addr, unsigned len);

#endif
