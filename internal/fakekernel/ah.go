//go:build linux

package fakekernel

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// ah is an address handle.
type ah struct {
	pd  *pd
	num uint32
	way way
}

func (a *ah) kind() uint16 { return abi.UVERBS_OBJECT_AH }
func (a *ah) busy() error  { return nil }

func (a *ah) end(f *verbsFile) {
	a.pd.users--
	delete(f.dev.ahs, a.num)
}

// way is where a datagram goes, and what stands in its header.
type way struct {
	src, dst     netip.Addr
	hopLimit     uint8
	trafficClass uint8
}

// unicastHops is the limit of the system's routes, which the kernel puts in the place of
// the user's.
const unicastHops = 64

func (f *verbsFile) createAH(in, resp []byte, u *udata) (int, error) {
	c := load[abi.IbUverbsCreateAh](in)
	if c.Attr.PortNum != 1 {
		return 0, unix.EINVAL
	}
	p, err := lookup[*pd](f, c.PdHandle)
	if err != nil {
		return 0, err
	}
	g := &c.Attr.Grh
	switch {
	case c.Attr.IsGlobal == 0:
		return 0, unix.EINVAL
	case int(g.SgidIndex) >= len(f.dev.gids):
		return 0, unix.ENODATA
	}
	a := &ah{pd: p, way: way{
		src: f.dev.gidAddr(g.SgidIndex), dst: netip.AddrFrom16(g.Dgid).Unmap(),
		hopLimit: g.HopLimit, trafficClass: g.TrafficClass,
	}}
	if !a.way.dst.IsMulticast() {
		a.way.hopLimit = unicastHops
	}
	if err := f.dev.drv.newAH(f, a, &c, u); err != nil {
		return 0, err
	}
	p.users++
	r := abi.IbUverbsCreateAhResp{AhHandle: f.add(a)}
	return copy(resp, bytesOf(&r)), nil
}

// newAH gives it a number, by which requests name it.
func (rxeDriver) newAH(f *verbsFile, a *ah, _ *abi.IbUverbsCreateAh, u *udata) error {
	f.dev.lastAH = nextIndex(f.dev.lastAH, 1, f.dev.limits().ah, f.dev.ahs)
	a.num = f.dev.lastAH
	f.dev.ahs[a.num] = a
	if f.k.version >= v517 && u.room >= len(bytesOf(&abi.RxeCreateAhResp{})) {
		u.answer(bytesOf(&abi.RxeCreateAhResp{AhNum: a.num}))
	}
	return nil
}

// way finds out where a datagram goes: by the number of an address handle of the queue
// pair's domain, or by what an older user wrote into the request. rxe_get_av.
func (q *qp) way(w *work) (way, bool) {
	if w.to.AhNum != 0 && q.f.k.version >= v517 {
		a := q.f.dev.ahs[w.to.AhNum]
		if a == nil || a.pd != q.pd {
			return way{}, false
		}
		return a.way, true
	}
	av := &w.to.Av
	if int(av.Grh.SgidIndex) >= len(q.f.dev.gids) {
		return way{}, false
	}
	x := way{hopLimit: av.Grh.HopLimit, trafficClass: av.Grh.TrafficClass}
	switch av.NetworkType {
	case abi.RXE_NETWORK_TYPE_IPV4:
		x.src = netip.AddrFrom4([4]byte(bytesOf(&av.SgidAddrSockaddrIn().SinAddr)))
		x.dst = netip.AddrFrom4([4]byte(bytesOf(&av.DgidAddrSockaddrIn().SinAddr)))
	default:
		x.src = netip.AddrFrom16([16]byte(bytesOf(&av.SgidAddrSockaddrIn6().Sin6Addr)))
		x.dst = netip.AddrFrom16([16]byte(bytesOf(&av.DgidAddrSockaddrIn6().Sin6Addr)))
	}
	return x, true
}

// gidAddr is a GID of the table as an address.
func (d *device) gidAddr(i uint8) netip.Addr {
	return netip.AddrFrom16([16]byte(bytesOf(&d.gids[i].Gid))).Unmap()
}
