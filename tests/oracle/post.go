package oracle

import (
	"fmt"
	"strings"

	"github.com/pureverbs/rdma/uverbs"
)

var opcodes = map[string]uverbs.Opcode{
	"send": uverbs.OpSend, "imm": uverbs.OpSendImm, "inv": uverbs.OpSendInvalidate, "write": uverbs.OpRDMAWrite,
	"writeimm": uverbs.OpRDMAWriteImm, "read": uverbs.OpRDMARead, "swap": uverbs.OpCompareSwap,
	"add": uverbs.OpFetchAdd, "linv": uverbs.OpLocalInvalidate, "bind": uverbs.OpBindMW,
}

// sges reads a list of pieces.
func (r *Runner) sges(list string) (sgl []uverbs.SGE) {
	if list == "" || list == "0" {
		return nil
	}
	for piece := range strings.SplitSeq(list, ",") {
		p := strings.Split(piece, ":")
		sgl = append(sgl, at(r.mrs, p[0]).SGE(int(number(p[1])), int(number(p[2]))))
	}
	return sgl
}

// bytesOf are the pieces of a list as inline data.
func (r *Runner) bytesOf(list string) (all [][]byte) {
	if list == "" || list == "0" {
		return nil
	}
	for piece := range strings.SplitSeq(list, ",") {
		p := strings.Split(piece, ":")
		from := at(r.mrs, p[0]).off + int(number(p[1]))
		all = append(all, r.Arena[from:from+int(number(p[2]))])
	}
	return all
}

// key is the remote key of a region or a window.
func (r *Runner) key(name string) uint32 {
	if strings.HasPrefix(name, "w") {
		return at(r.mws, name).RKey()
	}
	return at(r.mrs, name).RKey()
}

func flagsOf(letters string) (f uverbs.SendFlags) {
	for _, c := range letters {
		f |= map[rune]uverbs.SendFlags{
			'f': uverbs.SendFence, 's': uverbs.SendSignaled, 'e': uverbs.SendSolicited, 'i': uverbs.SendInline,
		}[c]
	}
	return f
}

func (r *Runner) addSend(s *Step) error {
	wr := uverbs.SendWR{
		ID: s.num(1), Opcode: opcodes[s.arg(2)], Flags: flagsOf(s.Opts["flags"]), Imm: uint32(s.opt("imm")),
		CompareAdd: s.opt("add"), Swap: s.opt("swap"),
	}
	if wr.Flags&uverbs.SendInline != 0 {
		wr.Inline = r.bytesOf(s.Opts["sge"])
	} else {
		wr.SGL = r.sges(s.Opts["sge"])
	}
	if to, ok := s.Opts["to"]; ok { // REGION:OFFSET[:WHOSE KEY]
		p := strings.Split(to, ":")
		wr.RemoteAddr = arenaAddr + uint64(at(r.mrs, p[0]).off) + number(p[1])
		wr.RKey = r.key(append(p, p[0])[2])
	}
	if name, ok := s.Opts["inv"]; ok {
		wr.InvKey = r.key(name)
	}
	if name, ok := s.Opts["ah"]; ok {
		wr.Dest = at(r.ahs, name).Dest(uint32(s.opt("qpn")), uint32(s.opt("qkey")))
	}
	if name, ok := s.Opts["mw"]; ok {
		w := at(r.mws, name)
		b, err := w.Prepare(at(r.mrs, s.Opts["mr"]).MR, int(s.opt("off")), int(s.opt("len")), uverbs.IncRKey(w.RKey()), accessOf(s.Opts["access"]))
		if err != nil {
			return err
		}
		wr.Bind = &b
	}
	i := index(s.arg(0))
	r.sends[i] = append(r.sends[i], wr)
	return nil
}

func (r *Runner) addRecv(lists [][]uverbs.RecvWR, s *Step) error {
	i := index(s.arg(0))
	lists[i] = append(lists[i], uverbs.RecvWR{ID: s.num(1), SGL: r.sges(s.arg(2))})
	return nil
}

func posted(n int, err error) string { return fmt.Sprint(n, " ", verdict(err)) }

func (r *Runner) post(s *Step) string {
	i := index(s.arg(0))
	wrs := r.sends[i]
	r.sends[i] = nil
	return posted(r.qps[i].PostSend(wrs))
}

func (r *Runner) recvPost(s *Step) string {
	i := index(s.arg(0))
	wrs := r.recvs[i]
	r.recvs[i] = nil
	return posted(r.qps[i].PostRecv(wrs))
}

func (r *Runner) srqPost(s *Step) string {
	i := index(s.arg(0))
	wrs := r.srqRs[i]
	r.srqRs[i] = nil
	return posted(r.srqs[i].PostRecv(wrs))
}

func (r *Runner) bind(s *Step) string {
	w := at(r.mws, s.arg(1))
	var m *uverbs.MR
	if s.num(6) > 0 {
		m = at(r.mrs, s.arg(4)).MR
	}
	err := w.Bind(at(r.qps, s.arg(0)), s.num(2), flagsOf(s.arg(3)), m, int(s.num(5)), int(s.num(6)), accessOf(s.arg(7)))
	return fmt.Sprintf("%s %#x", verdict(err), w.RKey())
}
