//go:build linux

package oracle

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
)

// bug is a fault to be planted into the provider: one place of one file.
type bug struct {
	name     string
	file     string
	old, new string
	few      bool // among those that are always planted
}

var bugs = []bug{
	{"field of a request: solicited", "send.go", "4: ctrlSolicited, 5:", "4: ctrlSignal, 5:", true},
	{"field of a request: remote key", "send.go", "at.put64(24, uint64(wr.RKey)<<32)\n\treturn", "at.put64(24, uint64(wr.RKey))\n\treturn", false},
	{"field of a request: key to invalidate", "send.go", "wr.InvKey&o.key", "wr.Imm&o.key", false},
	{"field of a request: index", "send.go", "uint64(cur&0xffff)<<40", "uint64(cur&0xf)<<40", false},
	{
		"order: a register is rung before the record says so", "send.go",
		"mmio.Doorbell(s.record, count, to.word64(0), *last.word64(0))",
		"mmio.Store64(to.word64(0), *last.word64(0))\n\t\tmmio.StoreRecord(s.record, count)", true,
	},
	{
		"order: a request is copied before the record says so", "send.go",
		"mmio.DoorbellCopy(s.record, count, to.block(), last.block(), blocks)",
		"var late uint32\n\t\tmmio.DoorbellCopy(&late, count, to.block(), last.block(), blocks)\n\t\tmmio.StoreRecord(s.record, count)", true,
	},
	{
		"order: a queue is armed before the record says so", "cq.go",
		"mmio.Doorbell(q.rec.word32(sendCount), swapped(word), q.register",
		"defer mmio.StoreRecord(q.rec.word32(sendCount), swapped(word))\n\tvar early uint32\n\tmmio.Doorbell(&early, swapped(word), q.register", true,
	},
	{"order: receives are published twice, once too early", "recv.go", "\tr.ids[i] = wr.ID\n\tr.head++", "\tr.ids[i] = wr.ID\n\tr.head += 2", false},
	{"index: blocks of the send queue", "send.go", "uintptr(cur&s.mask) << blockShift", "uintptr((cur+1)&s.mask) << blockShift", true},
	{"index: numbers of plain requests", "plain.go", "op.note.with(s.head+uint32(i), 1)", "op.note.with(s.head, 1)", false},
	{"field of a plain request: length of inline data", "plain.go", "seg.put32(0, uint32(len(data))|inlineFlag)", "seg.put32(0, uint32(len(data)))", false},
	{"index: of what is kept of a request", "poll.go", "slot := &s.slots[uint32(at)&s.mask]", "slot := &s.slots[(uint32(at)+1)&s.mask]", true},
	{"index: slots of the receive queue", "recv.go", "i := r.head & r.mask", "i := (r.head + 1) & r.mask", false},
	{"index: owner of completions", "cq.go", "uint8(i >> (r.log & 31) & 1)", "uint8(i >> ((r.log + 1) & 31) & 1)", false},
	{"ring: pieces go on behind its end", "send.go", "if seg == s.end {\n\t\t\tseg = s.ring\n\t\t}\n\t\tseg.put64(0, uint64(e.Length)", "seg.put64(0, uint64(e.Length)", false},
	{"ring: a copied request goes on behind its end", "send.go", "if s.left(last) >= blocks*blockSize {", "if s.left(last) >= 0 {", false},
	{"inline data: its length in units", "inline.go", "return (inlineHead + total + pieceSize - 1) / pieceSize", "return (total + pieceSize - 1) / pieceSize", false},
	{"register: the halves are not taken in turn", "send.go", "reg.half ^= reg.flip", "reg.half ^= 0", false},
	{"fence after a change of keys", "umr.go", "s.fence = ctrlSmallFence", "s.fence = 0", false},
	{"window: its rights", "umr.go", "access&accessRemoteWrite<<4", "access&accessRemoteWrite<<3", false},
	{"window: mask of a bind", "umr.go", "flags |= umrCheckFree", "flags |= 0", false},
	{"completion: a field", "cqe.go", "wc.SLID = e.get16(offSLID)", "wc.SLID = e.get16(offSLID - 2)", true},
	{"completion: a status", "cqe.go", "0x13: provider.WCRemoteAccessError", "0x13: provider.WCRemoteOperationError", false},
	{"completion: none is reported for invalidations", "cqe.go", "wc.Flags |= provider.WCWithInv", "wc.Flags |= provider.WCWithImm", false},
	{"position: of the queue in the record", "cq.go", "swapped(q.next&counter)", "swapped((q.next-1)&counter)", false},
	{"serial number of arming", "cq.go", "q.events.Load()&armMask<<armShift", "0&armMask<<armShift", false},
	{"removal: the owner's bit moves along", "purge.go", "from.get8(offOwner)&^1|owner", "from.get8(offOwner)|owner&0", false},
	{"removal: receives of a shared queue are lost", "purge.go", "q.srq.finish(e.get16(offCounter))", "_ = e", false},
	{"resize: entries are where they were", "resize.go", "e := q.ring.entry(n + 1)", "e := q.ring.entry(n)", false},
	{"shared queue: what came back is not seen", "srq.go", "id, word.And(^bit)&bit != 0", "id, word.Load()&bit != 0", false},
	{"way: service level", "way.go", "w.SL & 7 << 1", "w.SL & 7", false},
	{"reset: the counters stay", "send.go", "s.head, s.seen, s.cur, s.fresh = 0, 0, 0, 0", "s.head, s.seen, s.fresh = 0, 0, 0", false},
}

// TestPlantedBugs builds the provider with one fault each, and sees that the comparison with
// the goldens finds it. What libibverbs did is in them with the doorbells as they were heard.
func TestPlantedBugs(t *testing.T) {
	needLauncher(t)
	m := modes[0]
	scenarios, want := readGolden(t, m)
	program, err := goSide()
	testutil.Must(t, err)
	if found := hunt(t, scenarios, want, program); found != "" {
		t.Fatalf("without a bug: %s", found)
	}
	for _, b := range bugs {
		if !b.few && !*planted {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			found := hunt(t, scenarios, want, b.build(t))
			if found == "" {
				t.Error("not found")
			}
			t.Log(found)
		})
	}
}

// build makes the Go side with the bug in it.
func (b *bug) build(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../internal/provider/mlx5", b.file))
	testutil.Must(t, err)
	source, err := os.ReadFile(path)
	testutil.Must(t, err)
	if n := strings.Count(string(source), b.old); n != 1 {
		t.Fatalf("%s has %q %d times, want once: the list of bugs is out of date", b.file, b.old, n)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, b.file), filepath.Join(dir, "overlay.json")
	testutil.Must(t, os.WriteFile(changed, []byte(strings.Replace(string(source), b.old, b.new, 1)), 0o600))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	testutil.Must(t, err)
	testutil.Must(t, os.WriteFile(overlay, list, 0o600))
	program, err := buildGo("run-"+b.file, "./run", "-overlay", overlay)
	testutil.Must(t, err)
	return program
}

// hunt tells where a program first differs from the goldens, "" if it does not.
func hunt(t *testing.T, scenarios, want, program string) string {
	t.Helper()
	out, runErr := trace(t, modes[0], scenarios, program)
	var cmp Comparison
	_, traces := Traces(out)
	names, wantTraces := Traces(want)
	for _, name := range names {
		c := strings.Split(strings.TrimSuffix(wantTraces[name], "\n"), "\n")
		if d := Differ(c, cmp.Plain(name, traces[name], SideGo)); d != "" {
			return "scenario " + name + ", " + d
		}
	}
	if runErr != nil {
		return runErr.Error()
	}
	return ""
}
