package main

import (
	"net/netip"

	"github.com/gaissmai/bart"
)

// bart.Fast: nodes are flat arrays. The same as table.go but for the type: calls through an interface would cost.
type fastEngine struct{ t *bart.Fast[uint32] }

func newFast() fastEngine { return fastEngine{new(bart.Fast[uint32])} }

func (e fastEngine) insert(r route) { e.t.Insert(r.prefix, r.hop) }

func (e fastEngine) remove(p netip.Prefix) { e.t.Delete(p) }

func (e fastEngine) batch(keys []netip.Addr, out []uint32) {
	t := e.t
	for i, key := range keys {
		// The value is 0 where nothing is found.
		out[i], _ = t.Lookup(key)
	}
}

func (e fastEngine) dependent(keys []netip.Addr, out []uint32) {
	t, last := e.t, uint32(0)
	for i := range keys {
		// The index waits for the last answer: the address itself cannot be changed in place.
		last, _ = t.Lookup(keys[i+int(last&zero)])
		out[i] = last
	}
}
