package oracle

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Generate makes a random scenario of a seed. Whether queues are full, requests allowed and
// completions possible is left to chance, as far as both libraries are to do the same.
func Generate(seed uint64) string {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x6f7261636c65))}
	g.line("scenario r%d", seed)
	g.setUp()
	for range 8 + g.IntN(40) {
		g.act()
	}
	g.line("end")
	return g.text.String()
}

// The regions of the arena that all random scenarios have.
const regionSize = ArenaSize / 2

type generator struct {
	*rand.Rand
	text strings.Builder
	qps  []genQP
	cqs  int
	srq  bool
	mw2  bool // there are windows: w0 of type 1, w1 and w2 of type 2
	id   int
	ch   bool

	// roomy: completion queues hold all that may be flushed. With others no queue pair is
	// moved to ERROR, for the device would break the queue.
	roomy bool
	size  struct{ srqSGE int }
}

type genQP struct {
	typ        string
	scq, rcq   int
	ssge, rsge int
	inline     int
	swr, rwr   int
	srq, gone  bool
	rts        bool // it was in this state
}

func (g *generator) line(format string, args ...any) { fmt.Fprintf(&g.text, format+"\n", args...) }

// odds is true once in n times.
func (g *generator) odds(n int) bool { return g.IntN(n) == 0 }

// upTo is at least 1, and mostly small.
func (g *generator) upTo(n int) int { return 1 + g.IntN(1+g.IntN(n)) }

func pick[T any](g *generator, all ...T) T { return all[g.IntN(len(all))] }

func (g *generator) setUp() {
	g.line("pd p0")
	g.line("mr m0 p0 0 %#x lwrab", regionSize)
	g.line("mr m1 p0 %#x %#x lwrab", regionSize, regionSize)
	if g.ch = g.odds(3); g.ch {
		g.line("ch h0")
	}
	g.cqs = 1 + g.IntN(2)
	g.roomy = g.odds(4)
	for i := range g.cqs {
		ch := ""
		if g.ch && i == 0 {
			ch = " ch=h0"
		}
		size := g.upTo(130)
		if g.roomy {
			size += 600
		}
		g.line("cq c%d %d%s", i, size, ch)
	}
	if g.srq = g.odds(4); g.srq {
		g.size.srqSGE = 1 + g.IntN(7)
		g.line("srq s0 p0 %d %d", g.upTo(40), g.size.srqSGE)
	}
	typ := pick(g, "rc", "rc", "rc", "uc", "ud")
	if typ == "ud" {
		g.line("ah a0 p0 sl=%d rate=%d flow=%#x hop=%d class=%d sgid=%d", g.IntN(8), pick(g, 0, 2+g.IntN(20)), 1+g.IntN(1<<20-1), g.IntN(256), g.IntN(256), g.IntN(4))
	}
	if g.mw2 = typ == "rc" && g.odds(3); g.mw2 {
		g.line("mw w0 p0 1\nmw w1 p0 2\nmw w2 p0 2")
	}
	for range 1 + g.IntN(3) {
		g.addQP(typ)
	}
}

func (g *generator) addQP(typ string) {
	q := genQP{
		typ: typ, scq: g.IntN(g.cqs), rcq: g.IntN(g.cqs), swr: g.upTo(40), rwr: g.upTo(40), ssge: 1 + g.IntN(5), rsge: 1 + g.IntN(5),
		inline: pick(g, 0, 0, 11, 28, 60, 64, 200, 400), srq: g.srq && g.odds(2),
	}
	if g.odds(8) {
		q.ssge = 1 + g.IntN(30)
	}
	i := len(g.qps)
	g.qps = append(g.qps, q)
	text := fmt.Sprintf("qp q%d %s p0 c%d c%d %d %d %d %d %d", i, typ, q.scq, q.rcq, q.swr, q.rwr, q.ssge, q.rsge, q.inline)
	if q.srq {
		text += " srq=s0"
	}
	if g.odds(4) {
		text += " all"
	}
	g.line("%s", text)
	if g.odds(20) {
		g.recvs(i) // in RESET that is refused
	}
	g.bringUp(i)
}

// bringUp makes a queue pair able to send, mostly.
func (g *generator) bringUp(i int) {
	for _, state := range []string{"init", "rtr", "rts"} {
		if g.odds(40) {
			g.qps[i].rts = false
			return
		}
		g.line("modify q%d %s peer=q%d", i, state, g.IntN(len(g.qps)))
	}
	g.qps[i].rts = true
}

// act adds a step or a few that belong together.
func (g *generator) act() {
	i := g.IntN(len(g.qps))
	if g.qps[i].gone {
		i = 0
	}
	q := &g.qps[i]
	switch n := g.IntN(100); {
	case q.gone:
		g.line("poll c%d 4", g.IntN(g.cqs))
	case n < 36:
		g.sends(i)
	case n < 48:
		g.recvs(i)
	case n < 78:
		for range g.upTo(6) {
			g.complete(i)
		}
		if g.odds(3) {
			g.line("poll c%d %d", g.IntN(g.cqs), g.upTo(20))
		}
	case n < 88:
		g.line("poll c%d %d", g.IntN(g.cqs), g.upTo(20))
	case n < 92:
		g.line("arm c%d%s", g.IntN(g.cqs), pick(g, "", " se"))
		if g.ch && g.odds(2) {
			g.complete(i)
			g.line("event h0")
		}
	case n < 94 && !g.roomy:
		g.line("resize c%d %d", g.IntN(g.cqs), g.upTo(200))
	case n < 96:
		g.line("modify q%d reset", i)
		g.bringUp(i)
	case n < 97 && g.roomy && q.rts:
		g.line("modify q%d err", i)
	case n < 98 && g.odds(2):
		g.line("query q%d", i)
	case n < 98:
		g.line("modify q%d %s peer=q0", i, pick(g, "init", "rtr", "rts")) // mostly no step that there is
	case n < 99 && len(g.qps) > 1:
		g.line("close q%d", i)
		q.gone = true
	case g.mw2:
		g.bind1(i)
	}
}

func (g *generator) nextID() string {
	g.id++
	return fmt.Sprintf("%#x", g.id|int(g.Uint32()&0xff00)<<24)
}
