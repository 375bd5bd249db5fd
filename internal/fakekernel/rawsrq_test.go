//go:build linux

package fakekernel

import (
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/uapi"
)

// rawSRQ is a shared receive queue.
type rawSRQ struct {
	d             *dev
	handle        uint32
	maxWR, maxSGE uint32
	q             *rxe.SRQ
}

func createSRQ(s *rawSRQ, pd, wr, sge, limit uint32, udata []byte) *uapi.Command {
	return cmd(uapi.SRQCreate).
		New(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE).
		Use(abi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, pd).
		Const(abi.UVERBS_ATTR_CREATE_SRQ_TYPE, abi.IB_UVERBS_SRQT_BASIC).
		In64(abi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 0x5e9).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR, wr).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE, sge).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_LIMIT, limit).
		Out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, bytesOf(&s.maxWR)).
		Out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, bytesOf(&s.maxSGE)).
		Driver(nil, udata)
}

func (d *dev) srq(pd, wr uint32) *rawSRQ {
	d.t.Helper()
	s := &rawSRQ{d: d}
	var plan rxe.SRQPlan
	c := createSRQ(s, pd, wr, 2, 0, plan.Out())
	must(d.t, c.Do(d.f))
	s.handle = c.Result(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE)
	var err error
	s.q, err = plan.Attach(d.mapper, s.maxSGE)
	must(d.t, err)
	return s
}

func (s *rawSRQ) recv(id uint64, sgl []provider.SGE) {
	s.d.t.Helper()
	must(s.d.t, s.q.Recv(&provider.RecvWR{ID: id, SGL: sgl}, total(sgl)))
	s.q.PublishRecv()
}

// modify changes size or limit; room takes the answer of a change of size.
func (s *rawSRQ) modify(mask, wr, limit uint32, in []byte) error {
	c := abi.IbUverbsModifySrq{SrqHandle: s.handle, AttrMask: mask, MaxWr: wr, SrqLimit: limit}
	return uapi.Invoke(s.d.f, abi.RDMA_DRIVER_RXE, uapi.ModifySRQ, bytesOf(&c), nil, in, nil)
}

func (s *rawSRQ) query() (r abi.IbUverbsQuerySrqResp) {
	s.d.t.Helper()
	must(s.d.t, s.d.invoke(uapi.QuerySRQ, bytesOf(&abi.IbUverbsQuerySrq{SrqHandle: s.handle}), bytesOf(&r)))
	return r
}

// asyncEvents reads what asynchronous events there are, as pairs of element and type.
func (d *dev) asyncEvents() (list [][2]uint64) {
	d.t.Helper()
	for {
		var e abi.IbUverbsAsyncEventDesc
		if _, err := d.async.(*eventFile).tryRead(bytesOf(&e)); err != nil {
			want(d.t, "asynchronous event", err, unix.EAGAIN)
			return list
		}
		list = append(list, [2]uint64{e.Element, uint64(e.EventType)})
	}
}

// wantAsync checks what asynchronous events there are.
func (d *dev) wantAsync(what string, events ...[2]uint64) {
	d.t.Helper()
	if diff := cmp.Diff(events, d.asyncEvents()); diff != "" {
		d.t.Errorf("%s: asynchronous events (-want +got):\n%s", what, diff)
	}
}

// ah makes an address handle to a GID; what comes back fills a request in.
func (d *dev) ah(pd uint32, sgidIndex uint8, dgid [16]byte, hops uint8) (handle uint32, av *provider.AV) {
	d.t.Helper()
	var plan rxe.AHPlan
	handle, err := d.createAH(ahAttr(pd, sgidIndex, dgid, hops), plan.Out())
	must(d.t, err)
	w := rxe.Way{Port: 1, DGID: dgid, SGIDIndex: sgidIndex, HopLimit: hops, TrafficClass: 0x5a}
	w.SGID = [16]byte(bytesOf(&d.device().gids[sgidIndex].Gid))
	av = new(provider.AV)
	plan.Fill(av, &w)
	return handle, av
}

func ahAttr(pd uint32, sgidIndex uint8, dgid [16]byte, hops uint8) abi.IbUverbsCreateAh {
	c := abi.IbUverbsCreateAh{PdHandle: pd}
	c.Attr.PortNum, c.Attr.IsGlobal = 1, 1
	c.Attr.Grh.Dgid, c.Attr.Grh.SgidIndex, c.Attr.Grh.HopLimit, c.Attr.Grh.TrafficClass = dgid, sgidIndex, hops, 0x5a
	return c
}

func (d *dev) createAH(c abi.IbUverbsCreateAh, udata []byte) (uint32, error) {
	var r abi.IbUverbsCreateAhResp
	err := uapi.Invoke(d.f, abi.RDMA_DRIVER_RXE, uapi.CreateAH, bytesOf(&c), bytesOf(&r), nil, udata)
	return r.AhHandle, err
}

func (d *dev) device() *device { return d.f.(*verbsFile).dev }

// gidOf is a GID of a device.
func gidOf(d *dev, i int) [16]byte { return [16]byte(bytesOf(&d.device().gids[i].Gid)) }
