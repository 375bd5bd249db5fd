package oracle

import (
	"fmt"
	"io"
	"strings"

	"github.com/pureverbs/rdma/uverbs"
)

// keep notes a new object and says that it is there.
func keep[T io.Closer](r *Runner, s *Step, all *[]T, o T, err error, what ...any) string {
	if err != nil {
		*all = append(*all, *new(T))
		return "refused"
	}
	*all = append(*all, o)
	r.made = append(r.made, made{s.arg(0), o})
	return strings.TrimSpace("ok " + fmt.Sprintln(what...))
}

func (r *Runner) pd(s *Step) string {
	p, err := r.ctx.AllocPD()
	return keep(r, s, &r.pds, p, err)
}

// accessBits are the letters of access.
var accessBits = map[rune]uverbs.AccessFlags{
	'l': uverbs.AccessLocalWrite, 'w': uverbs.AccessRemoteWrite, 'r': uverbs.AccessRemoteRead,
	'a': uverbs.AccessRemoteAtomic, 'b': uverbs.AccessMWBind, 'z': uverbs.AccessZeroBased,
}

func accessOf(letters string) (a uverbs.AccessFlags) {
	for _, c := range letters {
		a |= accessBits[c]
	}
	return a
}

func (r *Runner) mr(s *Step) string {
	off := int(s.num(2))
	m, err := at(r.pds, s.arg(1)).RegMR(r.Arena[off:][:s.num(3)], accessOf(s.arg(4)))
	return keep(r, s, &r.mrs, &region{m, off}, err)
}

func (r *Runner) rereg(s *Step) string {
	m, off := at(r.mrs, s.arg(0)), int(s.num(1))
	err := m.Reregister(uverbs.ReregTranslation|uverbs.ReregAccess, nil, r.Arena[off:][:s.num(2)], accessOf(s.arg(3)))
	if err == nil {
		m.off = off
	}
	return verdict(err)
}

func (r *Runner) channel(s *Step) string {
	ch, err := r.ctx.NewCompChannel()
	return keep(r, s, &r.chans, ch, err)
}

func (r *Runner) cq(s *Step) string {
	var ch *uverbs.CompChannel
	if name, ok := s.Opts["ch"]; ok {
		ch = at(r.chans, name)
	}
	q, err := r.ctx.CreateCQ(int(s.num(1)), ch)
	if err != nil {
		return keep(r, s, &r.cqs, q, err)
	}
	return keep(r, s, &r.cqs, q, nil, q.Cap())
}

func (r *Runner) resize(s *Step) string {
	q := at(r.cqs, s.arg(0))
	err := q.Resize(int(s.num(1)))
	return fmt.Sprint(verdict(err), " ", q.Cap())
}

func (r *Runner) srq(s *Step) string {
	q, err := at(r.pds, s.arg(1)).CreateSRQ(&uverbs.SRQInitAttr{MaxWR: uint32(s.num(2)), MaxSGE: uint32(s.num(3))})
	r.srqRs = append(r.srqRs, nil)
	return keep(r, s, &r.srqs, q, err)
}

func (r *Runner) limit(s *Step) string {
	return verdict(at(r.srqs, s.arg(0)).Modify(&uverbs.SRQAttr{Limit: uint32(s.num(1))}, uverbs.SRQAttrLimit))
}

func (r *Runner) querySRQ(s *Step) string {
	a, err := at(r.srqs, s.arg(0)).Query()
	return fmt.Sprint(verdict(err), " limit ", a.Limit)
}

var qpTypes = map[string]uverbs.QPType{"rc": uverbs.QPTypeRC, "uc": uverbs.QPTypeUC, "ud": uverbs.QPTypeUD}

func (r *Runner) qp(s *Step) string {
	attr := uverbs.QPInitAttr{
		Type: qpTypes[s.arg(1)], SendCQ: at(r.cqs, s.arg(3)), RecvCQ: at(r.cqs, s.arg(4)),
		Cap: uverbs.QPCap{
			MaxSendWR: uint32(s.num(5)), MaxRecvWR: uint32(s.num(6)), MaxSendSGE: uint32(s.num(7)),
			MaxRecvSGE: uint32(s.num(8)), MaxInline: uint32(s.num(9)),
		},
		SignalAll: s.has("all"),
	}
	if name, ok := s.Opts["srq"]; ok {
		attr.SRQ = at(r.srqs, name)
	}
	q, err := at(r.pds, s.arg(2)).CreateQP(&attr)
	r.sends, r.recvs = append(r.sends, nil), append(r.recvs, nil)
	if err != nil {
		return keep(r, s, &r.qps, q, err)
	}
	return keep(r, s, &r.qps, q, nil, capWords(q.Cap()))
}

func capWords(c uverbs.QPCap) string {
	return fmt.Sprint(c.MaxSendWR, " ", c.MaxRecvWR, " ", c.MaxSendSGE, " ", c.MaxRecvSGE, " ", c.MaxInline)
}

// gid is the first of the device's own.
var gid = uverbs.GID{0xfe, 0x80, 13: 0x0a, 15: 1}

func (r *Runner) ah(s *Step) string {
	a, err := at(r.pds, s.arg(1)).CreateAH(&uverbs.AHAttr{
		DGID: gid, IsGlobal: true, PortNum: 1, SL: uint8(s.opt("sl")), StaticRate: uint8(s.opt("rate")),
		FlowLabel: uint32(s.opt("flow")), HopLimit: uint8(s.opt("hop")), TrafficClass: uint8(s.opt("class")),
		SGIDIndex: uint8(s.opt("sgid")),
	})
	return keep(r, s, &r.ahs, a, err)
}

func (r *Runner) mw(s *Step) string {
	w, err := at(r.pds, s.arg(1)).AllocMW(uverbs.MWType(s.num(2)))
	if err != nil {
		return keep(r, s, &r.mws, w, err)
	}
	return keep(r, s, &r.mws, w, nil, fmt.Sprintf("%#x", w.RKey()))
}
