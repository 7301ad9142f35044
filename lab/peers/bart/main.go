// BART (Go) behind the protocol of lab/peers/README.md.
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
	"math"
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
	// Of updates; hop 0 withdraws.
	changes  []route
	changeAt int
	out    [chunk]uint32
}

func main() {
	runtime.LockOSThread()
	dieWithStarter()
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
		return nil, nil, errors.New("no such algorithm")
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
		"name": args[0], "version": version(), "routes": count, "refused": 0,
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
	case len(words) == 2 && words[0] == "changes":
		return p.setChanges(words[1])
	case len(words) == 1 && words[0] == "bytes":
		return reply{"bytes": p.bytes}, nil
	case len(words) == 1 && words[0] == "rest":
		for p.changeAt != 0 {
			p.change()
		}
		return reply{"ok": true, "failed": 0}, nil
	case len(words) == 3 && words[0] == "turn":
		ms, err := strconv.ParseUint(words[2], 10, 32)
		if err == nil {
			return p.turn(words[1], time.Duration(ms)*time.Millisecond)
		}
	case len(words) == 3 && words[0] == "update":
		ms, err := strconv.ParseUint(words[1], 10, 32)
		if err == nil {
			return p.update(time.Duration(ms)*time.Millisecond, words[2])
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

func (p *peer) setChanges(file string) (reply, error) {
	changes, err := read(file)
	if err != nil {
		return nil, err
	}
	p.changes, p.changeAt = changes, 0
	if len(changes) == 0 {
		return nil, errors.New("no changes in the file")
	}
	return reply{"ok": true, "changes": len(changes)}, nil
}

// The next one; a route that is not there is withdrawn already.
func (p *peer) change() {
	r := p.changes[p.changeAt]
	p.changeAt++
	if p.changeAt == len(p.changes) {
		p.changeAt = 0
	}
	if r.hop == 0 {
		p.engine.remove(r.prefix)
	} else {
		p.engine.insert(r)
	}
}

// Half of the time without a look at single changes, the other half with each timed and written down.
func (p *peer) update(limit time.Duration, file string) (reply, error) {
	if len(p.changes) == 0 {
		return nil, errors.New("no changes")
	}
	updates := 0
	cpu, begin := cpuTime(), time.Now()
	took := time.Duration(0)
	for took < limit/2 {
		for range 16 {
			p.change()
		}
		updates += 16
		took = time.Since(begin)
	}
	cpu = cpuTime() - cpu
	each := make([]byte, 0, 8*updates+1<<14)
	begin = time.Now()
	last := time.Duration(0)
	for last < limit/2 {
		p.change()
		now := time.Since(begin)
		each = binary.LittleEndian.AppendUint32(each, uint32(min(int64(now-last), math.MaxUint32)))
		last = now
	}
	return reply{"updates": updates, "ns": took.Nanoseconds(), "cpu_ns": cpu, "timed": len(each) / 4,
		"failed": 0}, os.WriteFile(file, each, 0o600)
}

// Nobody is left to answer when whoever started us is gone.
func dieWithStarter() {
	_, _, _ = syscall.Syscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
}

// CPU time of this thread, in nanoseconds.
func cpuTime() int64 {
	const threadClock = 3
	var t syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}
