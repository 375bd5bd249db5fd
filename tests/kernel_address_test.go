//go:build linux

package tests

import (
	"net/netip"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// addressCases are about address handles and multicast, which siw has none of.
var addressCases = []kernelCase{
	{"create handle", onlySiw(syscall.EOPNOTSUPP), func(r *rig) (fields, error) {
		_, number, err := r.ah(nil)
		if err != nil {
			return nil, err
		}
		return fields{"numbered": number != 0}, nil
	}},
	{"create handle without GRH", rules{{errno: syscall.EINVAL}, {driver: "siw", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		_, _, err := r.ah(func(a *abi.IbUverbsAhAttr) { a.IsGlobal = 0 })
		return nil, err
	}},
	{"create handle by an empty GID", rules{{errno: syscall.ENODATA}, {driver: "siw", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		_, _, err := r.ah(func(a *abi.IbUverbsAhAttr) { a.Grh.SgidIndex = 200 })
		return nil, err
	}},
	{"create handle on port 9", rules{{errno: syscall.EINVAL}, {driver: "siw", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		_, _, err := r.ah(func(a *abi.IbUverbsAhAttr) { a.PortNum = 9 })
		return nil, err
	}},
	{"destroy handle", onlySiw(syscall.EOPNOTSUPP), func(r *rig) (fields, error) {
		h, _, err := r.ah(nil)
		if err != nil {
			return nil, err
		}
		return nil, r.cmd(uapi.AHDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_AH_HANDLE, h).Do(r.f)
	}},
	{"free a domain with a handle", rules{{errno: syscall.EBUSY}, {driver: "siw", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		if _, _, err := r.ah(nil); err != nil {
			return nil, err
		}
		return nil, r.destroyPD(r.pd)
	}},
	{"attach", onlySiw(syscall.EOPNOTSUPP), func(r *rig) (fields, error) {
		return nil, r.mcast(uapi.AttachMcast, r.udQP(), mcastGID)
	}},
	{"attach twice", onlySiw(syscall.EOPNOTSUPP), func(r *rig) (fields, error) {
		q := r.udQP()
		if err := r.mcast(uapi.AttachMcast, q, mcastGID); err != nil {
			return nil, err
		}
		return nil, r.mcast(uapi.AttachMcast, q, mcastGID)
	}},
	{"attach to a unicast address", rules{{errno: syscall.EINVAL}, {driver: "siw", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		return nil, r.mcast(uapi.AttachMcast, r.udQP(), netip.MustParseAddr("2001:db8::1"))
	}},
	{"attach RC", rules{{errno: syscall.EINVAL}, {driver: "siw", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		return nil, r.mcast(uapi.AttachMcast, r.mustQP(qpRequest{}), mcastGID)
	}},
	{"detach", onlySiw(syscall.EOPNOTSUPP), func(r *rig) (fields, error) {
		q := r.udQP()
		if err := r.mcast(uapi.AttachMcast, q, mcastGID); err != nil {
			return nil, err
		}
		return nil, r.mcast(uapi.DetachMcast, q, mcastGID)
	}},
	{"detach what is not attached", rules{{errno: syscall.EINVAL}, {driver: "siw", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		return nil, r.mcast(uapi.DetachMcast, r.udQP(), mcastGID)
	}},
	{"destroy an attached queue pair", rules{{errno: syscall.EBUSY}, {driver: "siw", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		q := r.udQP()
		if err := r.mcast(uapi.AttachMcast, q, mcastGID); err != nil {
			return nil, err
		}
		return nil, r.destroyQP(q, new(abi.IbUverbsDestroyQpResp))
	}},
}

var mcastGID = netip.MustParseAddr("239.1.2.3")

// udQP is a datagram queue pair, or on siw one that will not do.
func (r *rig) udQP() rawQP {
	if r.rxe() {
		return r.mustQP(qpRequest{typ: abi.IB_UVERBS_QPT_UD})
	}
	return r.mustQP(qpRequest{})
}

func (r *rig) ah(change func(*abi.IbUverbsAhAttr)) (handle, number uint32, err error) {
	var entry abi.IbUverbsGidEntry
	var out []byte
	var drv abi.RxeCreateAhResp
	if r.rxe() {
		entry, out = r.routable(), uapi.Bytes(&drv)
	}
	in := abi.IbUverbsCreateAh{UserHandle: 4, PdHandle: r.pd, Attr: abi.IbUverbsAhAttr{
		Grh:      abi.IbUverbsGlobalRoute{Dgid: [16]byte(uapi.Bytes(&entry.Gid)), SgidIndex: uint8(entry.GidIndex), HopLimit: 64},
		IsGlobal: 1, PortNum: 1,
	}}
	if change != nil {
		change(&in.Attr)
	}
	var resp abi.IbUverbsCreateAhResp
	err = r.invoke(uapi.CreateAH, uapi.Bytes(&in), uapi.Bytes(&resp), nil, out)
	return resp.AhHandle, drv.AhNum, err
}

func (r *rig) mcast(w *uapi.WriteCmd, q rawQP, group netip.Addr) error {
	in := abi.IbUverbsAttachMcast{Gid: group.As16(), QpHandle: q.handle}
	return r.invoke(w, uapi.Bytes(&in), nil, nil, nil)
}
