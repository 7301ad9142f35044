package main

import (
	"net/netip"

	"github.com/gaissmai/bart"
)

// bart.Table: routes and lookups in one trie, nodes compressed by popcount.
type tableEngine struct{ t *bart.Table[uint32] }

func newTable() tableEngine { return tableEngine{new(bart.Table[uint32])} }

func (e tableEngine) insert(r route) { e.t.Insert(r.prefix, r.hop) }

func (e tableEngine) remove(p netip.Prefix) { e.t.Delete(p) }

func (e tableEngine) batch(keys []netip.Addr, out []uint32) {
	t := e.t
	for i, key := range keys {
		// The value is 0 where nothing is found.
		out[i], _ = t.Lookup(key)
	}
}

func (e tableEngine) dependent(keys []netip.Addr, out []uint32) {
	t, last := e.t, uint32(0)
	for i := range keys {
		// The index waits for the last answer: the address itself cannot be changed in place.
		last, _ = t.Lookup(keys[i+int(last&zero)])
		out[i] = last
	}
}
