package oracle

import (
	"fmt"
	"strings"
)

// sends posts a list of requests.
func (g *generator) sends(i int) {
	bound := 0 // windows bound in this list
	for range g.upTo(1 + g.IntN(12)) {
		g.send(i, &bound)
	}
	g.line("post q%d", i)
}

func (g *generator) send(i int, bound *int) {
	q := &g.qps[i]
	op := pick(g, "send", "imm", "write", "writeimm", "inv")
	switch {
	case q.typ == "ud":
		op = pick(g, "send", "imm")
	case q.typ == "rc" && g.odds(2):
		op = pick(g, "read", "swap", "add", "send", "linv")
		if g.mw2 && *bound < 2 && g.odds(3) {
			op = "bind"
		}
	}
	flags := g.flags()
	inline := q.inline > 0 && strings.Contains("send imm inv write writeimm", op) && g.odds(3)
	if inline {
		flags += "i"
	}
	text := fmt.Sprintf("send q%d %s %s", i, g.nextID(), op)
	if flags != "" {
		text += " flags=" + flags
	}
	g.line("%s%s", text, g.operands(q, op, inline, bound))
}

func (g *generator) flags() (f string) {
	for _, c := range []struct {
		letter string
		odds   int
	}{{"s", 2}, {"f", 6}, {"e", 6}} {
		if g.odds(c.odds) {
			f += c.letter
		}
	}
	return f
}

// operands are the rest of a request.
func (g *generator) operands(q *genQP, op string, inline bool, bound *int) string {
	switch op {
	case "swap", "add":
		return fmt.Sprintf(" sge=%s to=m%d:%d add=%#x swap=%#x", g.piece(8), g.IntN(2), 8*g.IntN(1000), g.Uint64(), g.Uint64())
	case "linv":
		return " inv=" + g.anyKey()
	case "bind":
		*bound++
		return fmt.Sprintf(" mw=w%d mr=m%d off=%d len=%d access=%s", *bound, g.IntN(2), g.IntN(1000), g.upTo(4000), pick(g, "r", "w", "a", "rw", "rwa", "rz"))
	}
	text := ""
	switch op {
	case "read", "write", "writeimm":
		text += fmt.Sprintf(" to=m%d:%d:%s", g.IntN(2), g.IntN(1000), g.anyKey())
	case "inv":
		text += " inv=" + g.anyKey()
	}
	if op == "imm" || op == "writeimm" {
		text += fmt.Sprintf(" imm=%#x", g.Uint32())
	}
	if q.typ == "ud" {
		text += fmt.Sprintf(" ah=a0 qpn=%#x qkey=%#x", g.Uint32()&0xffffff, g.Uint32())
	}
	if inline {
		return text + " sge=" + g.pieces(q.ssge, q.inline)
	}
	return text + " sge=" + g.pieces(g.tooMany(q.ssge), 4096)
}

// tooMany is a number of pieces, now and then one that is refused.
func (g *generator) tooMany(n int) int {
	if g.odds(60) {
		return n + 1
	}
	return n
}

// anyKey names an object with a remote key.
func (g *generator) anyKey() string {
	if g.mw2 && g.odds(3) {
		return pick(g, "w0", "w1", "w2")
	}
	return pick(g, "m0", "m1")
}

func (g *generator) piece(n int) string {
	return fmt.Sprintf("m%d:%d:%d", g.IntN(2), g.IntN(regionSize-n), n)
}

// pieces is a list of up to most pieces of up to total bytes in all.
func (g *generator) pieces(most, total int) string {
	n := g.IntN(most + 1)
	if n == 0 {
		return "0"
	}
	var all []string
	for range n {
		size := g.IntN(1 + total/n)
		switch g.IntN(8) {
		case 0:
			size = 0
		case 1:
			size = total / n
		}
		all = append(all, g.piece(size))
	}
	return strings.Join(all, ",")
}

// recvs posts receives, where the queue pair takes them from.
func (g *generator) recvs(i int) {
	q := &g.qps[i]
	where, name, sge := "", fmt.Sprint("q", i), q.rsge
	if q.srq {
		where, name, sge = "s", "s0", g.size.srqSGE
	}
	for range g.upTo(1 + g.IntN(20)) {
		list := g.pieces(g.tooMany(sge), 4096)
		g.line("%srecv %s %s %s", where, name, g.nextID(), list)
	}
	g.line("%s %s", map[string]string{"": "rpost", "s": "spost"}[where], name)
}

// syndromes that a device has, and some that it has not.
var syndromes = []int{0x01, 0x02, 0x04, 0x05, 0x05, 0x05, 0x06, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x22, 0x03, 0x7f, 0xff}

// complete has the device write a completion.
func (g *generator) complete(i int) {
	q := &g.qps[i]
	noise := fmt.Sprintf("noise=%d", g.Uint32())
	if g.odds(6) {
		noise += " se"
	}
	if g.odds(25) {
		noise += " stale"
	}
	send, nth := g.odds(2), ""
	if send && g.odds(3) || !send && q.srq && g.odds(3) {
		nth = fmt.Sprintf(" nth=%d", g.IntN(4))
	}
	kind, cq := pick(g, "recv", "imm", "inv", "write"), q.rcq
	if send {
		kind, cq = "send", q.scq
	}
	if g.odds(5) {
		kind = map[bool]string{true: "sendfail", false: "recvfail"}[send]
		noise += fmt.Sprintf(" syn=%#x vendor=%#x", pick(g, syndromes...), g.IntN(0x90))
	}
	g.line("cqe c%d q%d %s %s%s", cq, i, kind, noise, nth)
}

// bind1 binds the window of type 1.
func (g *generator) bind1(i int) {
	flags := g.flags()
	if flags == "" {
		flags = "-"
	}
	g.line("bind q%d w0 %s %s m%d %d %d %s", i, g.nextID(), flags, g.IntN(2), g.IntN(100), pick(g, 0, 1, 100, 4000), pick(g, "r", "w", "rwa", "a"))
}
