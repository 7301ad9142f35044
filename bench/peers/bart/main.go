// BART (Go) behind the protocol of bench/peers/README.md.
//
//	peer table|fast 4|6 TABLEFILE
//
// The library looks one address up at a time, so a batch is a loop. Addresses are netip.Addr, made
// when keys arrive.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Keys between two looks at the clock; answers of so many stay in the first-level cache.
const chunk = 1024

type route struct {
	prefix netip.Prefix
	hop    uint32
}

// An engine answers chunks of keys; hop 0 is none.
type engine interface {
	insert(r route)
	remove(p netip.Prefix)
	batch(keys []netip.Addr, out []uint32)
	dependent(keys []netip.Addr, out []uint32)
}

// Zero, but the compiler cannot know: what makes one lookup wait for another.
var zero = uint32(len(os.Getenv("FINGERPOST_PEER_NONE")))

type reply map[string]any

type peer struct {
	engine engine
	bytes  uint64
	keys   []netip.Addr
	at     int
	out    [chunk]uint32
}

func main() {
	runtime.LockOSThread()
	replies := json.NewEncoder(os.Stdout)
	p, hello, err := start(os.Args[1:])
	if err != nil {
		_ = replies.Encode(reply{"error": err.Error()})
		os.Exit(1)
	}
	_ = replies.Encode(hello)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 1 && words[0] == "quit" {
			return
		}
		answer, err := p.do(words)
		if err != nil {
			answer = reply{"error": err.Error()}
		}
		if replies.Encode(answer) != nil {
			return
		}
	}
}

func start(args []string) (*peer, reply, error) {
	if len(args) != 3 {
		return nil, nil, errors.New("usage: peer table|fast 4|6 TABLEFILE")
	}
	p := &peer{}
	switch args[0] {
	case "table":
		p.engine = newTable()
	case "fast":
		p.engine = newFast()
	default:
		return nil, nil, errors.New("no such engine")
	}
	routes, err := read(args[2])
	if err != nil {
		return nil, nil, err
	}
	before := heap()
	begin := time.Now()
	for _, r := range routes {
		p.engine.insert(r)
	}
	took := time.Since(begin)
	p.bytes = heap() - before
	count := len(routes)
	runtime.KeepAlive(routes)
	return p, reply{
		"engine": args[0], "version": version(), "routes": count, "refused": 0,
		"build_ms": float64(took.Nanoseconds()) / 1e6, "bytes": p.bytes,
		"note": "one by one; bytes: growth of the heap, routes and lookups in one",
	}, nil
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, d := range info.Deps {
			if strings.HasSuffix(d.Path, "/bart") {
				return "bart " + d.Version + ", " + info.GoVersion
			}
		}
	}
	return "bart"
}

// What is in use after all garbage is gone.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func read(file string) ([]route, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var routes []route
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		text, number, ok := strings.Cut(lines.Text(), " ")
		prefix, err := netip.ParsePrefix(text)
		hop, bad := strconv.ParseUint(number, 10, 32)
		if !ok || err != nil || bad != nil {
			return nil, fmt.Errorf("no route: %s", lines.Text())
		}
		routes = append(routes, route{prefix, uint32(hop)})
	}
	return routes, lines.Err()
}

func (p *peer) do(words []string) (reply, error) {
	switch {
	case len(words) == 2 && words[0] == "keys":
		return p.setKeys(words[1])
	case len(words) == 2 && words[0] == "answers":
		return p.answers(words[1])
	case len(words) == 1 && words[0] == "bytes":
		return reply{"bytes": p.bytes}, nil
	case len(words) == 3:
		ms, err := strconv.ParseUint(words[2], 10, 32)
		limit := time.Duration(ms) * time.Millisecond
		if err == nil && words[0] == "turn" {
			return p.turn(words[1], limit)
		}
		if err == nil && words[0] == "update" {
			return p.update(words[1], limit)
		}
	}
	return nil, errors.New("no such command")
}

func (p *peer) setKeys(file string) (reply, error) {
	bytes, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p.keys, p.at = nil, 0
	if os.Args[2] == "4" {
		p.keys = make([]netip.Addr, len(bytes)/4)
		for i := range p.keys {
			var b [4]byte
			binary.BigEndian.PutUint32(b[:], binary.LittleEndian.Uint32(bytes[4*i:]))
			p.keys[i] = netip.AddrFrom4(b)
		}
	} else {
		p.keys = make([]netip.Addr, len(bytes)/16)
		for i := range p.keys {
			p.keys[i] = netip.AddrFrom16([16]byte(bytes[16*i : 16*i+16]))
		}
	}
	if len(p.keys) == 0 {
		return nil, errors.New("no keys in the file")
	}
	return reply{"ok": true, "keys": len(p.keys)}, nil
}

func (p *peer) answers(file string) (reply, error) {
	if len(p.keys) == 0 {
		return nil, errors.New("no keys")
	}
	hops := make([]uint32, len(p.keys))
	p.engine.batch(p.keys, hops)
	bytes := make([]byte, 0, 4*len(hops))
	for _, hop := range hops {
		bytes = binary.LittleEndian.AppendUint32(bytes, hop)
	}
	return reply{"ok": true}, os.WriteFile(file, bytes, 0o600)
}

func (p *peer) turn(mode string, limit time.Duration) (reply, error) {
	run := p.engine.batch
	switch mode {
	case "batch", "single":
	case "dependent":
		run = p.engine.dependent
	default:
		return nil, errors.New("no such mode")
	}
	if len(p.keys) == 0 {
		return nil, errors.New("no keys")
	}
	lookups := 0
	cpu, begin := cpuTime(), time.Now()
	took := time.Duration(0)
	for took < limit {
		keys := p.keys[p.at:min(p.at+chunk, len(p.keys))]
		run(keys, p.out[:])
		lookups += len(keys)
		p.at += len(keys)
		if p.at == len(p.keys) {
			p.at = 0
		}
		took = time.Since(begin)
	}
	return reply{"lookups": lookups, "ns": took.Nanoseconds(), "cpu_ns": cpuTime() - cpu}, nil
}

func (p *peer) update(file string, limit time.Duration) (reply, error) {
	routes, err := read(file)
	if err != nil {
		return nil, err
	}
	if len(routes) == 0 {
		return nil, errors.New("no updates in the file")
	}
	updates, at := 0, 0
	cpu, begin := cpuTime(), time.Now()
	took := time.Duration(0)
	for took < limit {
		for range 16 {
			r := routes[at]
			p.engine.remove(r.prefix)
			p.engine.insert(r)
			updates += 2
			at++
			if at == len(routes) {
				at = 0
			}
		}
		took = time.Since(begin)
	}
	return reply{"updates": updates, "ns": took.Nanoseconds(), "cpu_ns": cpuTime() - cpu, "failed": 0}, nil
}

// CPU time of this thread, in nanoseconds.
func cpuTime() int64 {
	const threadClock = 3
	var t syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}
