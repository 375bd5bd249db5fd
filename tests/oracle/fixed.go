package oracle

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed scenarios/*.txt
var written embed.FS

// Fixed are the scenarios that are always the same: those of the files in scenarios, and those
// that go through all of something.
func Fixed() ([]string, error) {
	files, err := written.ReadDir("scenarios")
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, f := range files {
		b, err := written.ReadFile("scenarios/" + f.Name())
		if err != nil {
			return nil, err
		}
		text.Write(b)
	}
	for _, all := range []func(*script){everyInline, everyList, everyWrap, everySyndrome, everyResize, everyRemoval, fullQueues} {
		all(&script{&text})
	}
	return Split(text.String())
}

// script is a text of scenarios that grows.
type script struct{ *strings.Builder }

func (s *script) line(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

// begin starts a scenario with a queue pair that can send.
func (s *script) begin(name, typ, qp string, cqe int) {
	s.line("scenario %s %s", name, typ)
	s.line("pd p0\nmr m0 p0 0 0x8000 lwrab\nmr m1 p0 0x8000 0x8000 lwrab\ncq c0 %d", cqe)
	if typ == "ud" {
		s.line("ah a0 p0 sl=1 flow=0x77 hop=3")
	}
	s.line("qp q0 %s p0 c0 c0 %s", typ, qp)
	s.line("modify q0 init\nmodify q0 rtr peer=q0\nmodify q0 rts")
}

// dest is what a type of queue pairs adds to each send.
func dest(typ string) string {
	if typ == "ud" {
		return " ah=a0 qpn=0x234567 qkey=0x89abcdef"
	}
	return ""
}

// opsOf are the operations of a type of queue pairs that carry data, with their operands.
func opsOf(typ string) []string {
	ops := []string{"send", "imm imm=0xa1b2c3d4"}
	if typ != "ud" {
		ops = append(ops, "inv inv=m1", "write to=m1:0x123", "writeimm to=m1:7 imm=1")
	}
	if typ == "rc" {
		ops = append(ops, "read to=m1:0x456")
	}
	return ops
}

var types = []string{"rc", "uc", "ud"}

// everyInline has each operation carry inline data of lengths around the ends of segments and
// blocks, one and two at a time.
func everyInline(s *script) {
	for _, typ := range types {
		s.begin("inline", typ, "32 4 4 1 200", 127)
		id := 0
		for _, n := range []int{0, 1, 3, 4, 11, 12, 13, 27, 28, 29, 44, 59, 60, 61, 100, 200} {
			for _, op := range opsOf(typ) {
				if strings.HasPrefix(op, "read") {
					continue
				}
				id++
				s.line("send q0 %d %s%s flags=is sge=m0:%d:%d", id, op, dest(typ), n, n)
				if id%3 == 0 {
					id++
					s.line("send q0 %d %s%s flags=i sge=m0:%d:%d,m0:9:0,m1:1:%d", id, op, dest(typ), n, n/2, n-n/2)
				}
				s.line("post q0")
			}
			s.line("cqe c0 q0 send nth=99 noise=%d\npoll c0 2", n)
		}
		s.line("end")
	}
}

// everyList has each operation carry lists of pieces.
func everyList(s *script) {
	for _, typ := range types {
		s.begin("lists", typ, "32 4 12 8 0", 127)
		id := 0
		for n := range 14 {
			for i, op := range opsOf(typ) {
				id++
				s.line("send q0 %d %s%s flags=%s sge=%s", id, op, dest(typ), []string{"s", "f", "e", "se"}[id%4], list(n, i))
				s.line("post q0")
			}
			s.line("cqe c0 q0 send nth=99 noise=%d\npoll c0 2", n)
			s.line("recv q0 %d %s\nrpost q0\ncqe c0 q0 recv noise=%d\npoll c0 2", id, list(min(n, 9), n), n)
		}
		s.line("end")
	}
}

// list is a list of n pieces, some of them empty.
func list(n, kind int) string {
	if n == 0 {
		return "0"
	}
	var all []string
	for i := range n {
		size := 10*i + 1
		if kind%3 == 1 && i%2 == 0 || kind%3 == 2 && i == n-1 {
			size = 0
		}
		all = append(all, fmt.Sprintf("m%d:%d:%d", i%2, 16*i, size))
	}
	return strings.Join(all, ",")
}

// everyWrap has requests of all lengths cross the end of a small ring at each block.
func everyWrap(s *script) {
	for _, typ := range types {
		for shift := range 4 {
			s.begin(fmt.Sprint("wrap ", shift), typ, "4 2 9 2 150", 31)
			for id := range 24 {
				op := opsOf(typ)[id%len(opsOf(typ))]
				rest := fmt.Sprintf("sge=%s", list(id*5%10, 0))
				if id%4 == shift && !strings.HasPrefix(op, "read") {
					rest = fmt.Sprintf("flags=i sge=m0:%d:%d", id, id*29%151)
				}
				s.line("send q0 %d %s%s %s\npost q0\ncqe c0 q0 send noise=%d\npoll c0 1", id, op, dest(typ), rest, id)
			}
			s.line("end")
		}
	}
}

// everySyndrome has requests of both kinds fail with each syndrome.
func everySyndrome(s *script) {
	s.begin("syndromes", "rc", "4 4 1 1 0", 15)
	for n := range 256 {
		s.line("send q0 %d send\npost q0\nrecv q0 %d m0:0:8\nrpost q0", n, n+1000)
		s.line("cqe c0 q0 sendfail syn=%d vendor=%d noise=%d\ncqe c0 q0 recvfail syn=%d vendor=%d noise=%d", n, n, n, n, n, n)
		s.line("poll c0 4")
	}
	s.line("end")
}

// everyResize resizes a queue in which there is nothing, something, and as much as it holds,
// at each place of the ring.
func everyResize(s *script) {
	for first := range 9 {
		s.begin(fmt.Sprint("resize ", first), "rc", "64 2 1 1 0", 7)
		id := 0
		complete := func(n int) {
			for range n {
				id++
				s.line("send q0 %d send\npost q0\ncqe c0 q0 send noise=%d", id, id)
			}
		}
		complete(first % 7)
		s.line("poll c0 16")
		for i, n := range []int{15, 7, 31, 3, 7} {
			complete(i)
			s.line("resize c0 %d\npoll c0 %d", n, 1+i)
			complete(1)
		}
		s.line("poll c0 20\nend")
	}
}

// everyRemoval takes the completions of one of two queue pairs out of a queue, at each place of
// the ring and in each order of three.
func everyRemoval(s *script) {
	for first := range 8 {
		s.begin(fmt.Sprint("removal ", first), "rc", "64 2 1 1 0", 7)
		s.line("qp q1 rc p0 c0 c0 64 2 1 1 0\nmodify q1 init\nmodify q1 rtr peer=q0\nmodify q1 rts")
		id := 0
		complete := func(q int) {
			id++
			s.line("send q%d %d send flags=s\npost q%d\ncqe c0 q%d send noise=%d", q, id, q, q, id)
		}
		for range first {
			complete(0)
			s.line("poll c0 1")
		}
		for order := range 1 << 3 {
			for i := range 3 {
				complete(order >> i & 1)
			}
			s.line("modify q1 reset\npoll c0 1\nmodify q1 init\nmodify q1 rtr peer=q0\nmodify q1 rts\npoll c0 8")
		}
		s.line("send q1 99 send flags=s\npost q1\ncqe c0 q1 send noise=1\nsend q0 98 send flags=s\npost q0\ncqe c0 q0 send noise=2\nclose q1\npoll c0 8\nend")
	}
}

// fullQueues posts more than there is room for.
func fullQueues(s *script) {
	for _, typ := range types {
		s.begin("full", typ, "5 6 2 2 0", 63)
		for round := range 3 {
			for id := range 20 {
				s.line("send q0 %d send%s sge=m0:0:8\nrecv q0 %d m0:0:8", 100*round+id, dest(typ), 1000+100*round+id)
			}
			s.line("post q0\nrpost q0\nsend q0 1 send%s\npost q0\nrecv q0 2 0\nrpost q0", dest(typ))
			s.line("cqe c0 q0 send noise=1 nth=2\ncqe c0 q0 recv noise=2\nsend q0 3 send%s\npost q0\nrecv q0 4 0\nrpost q0", dest(typ))
			s.line("poll c0 1\nsend q0 5 send%s\npost q0\npoll c0 1\nrecv q0 6 0\nrpost q0\ncqe c0 q0 send noise=3 nth=99", dest(typ))
			s.line("cqe c0 q0 recv noise=4\ncqe c0 q0 recv noise=5\ncqe c0 q0 recv noise=6\npoll c0 16")
		}
		s.line("end")
	}
}

// Long goes round the counters of blocks and of receives, which have 16 bits.
func Long() string {
	var text strings.Builder
	s := &script{&text}
	s.begin("long", "rc", "128 128 8 1 0", 511)
	for n := range 300 {
		for i := range 120 {
			s.line("send q0 %d send sge=%s", n*120+i, list(i%9, 0))
			s.line("recv q0 %d m0:%d:8", n*120+i, i)
		}
		s.line("post q0\nrpost q0")
		s.line("cqe c0 q0 send noise=%d nth=%d", n, 60+n%60)
		for range 8 {
			s.line("cqe c0 q0 recv noise=%d", n)
		}
		s.line("poll c0 8\ncqe c0 q0 send nth=200\npoll c0 20")
		for range 112 {
			s.line("cqe c0 q0 imm noise=%d", n)
		}
		for range 7 {
			s.line("poll c0 20")
		}
	}
	s.line("end")
	return text.String()
}
