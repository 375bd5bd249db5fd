//go:build linux

package fakekernel

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// TestIWPorts: listening takes the TCP port, in whatever port space.
func TestIWPorts(t *testing.T) {
	k := start(t, Options{Devices: []Device{{Driver: abi.RDMA_DRIVER_SIW}, {}, {Driver: abi.RDMA_DRIVER_SIW}}})
	c := openCM(t, k)
	try := func(ps uint16, a string, errno unix.Errno) {
		t.Helper()
		id, err := c.create(1, ps)
		must(t, err)
		must(t, c.bind(id, ap(a), 0))
		want(t, "listen at "+a, c.listen(id, 1), errno)
		if errno != 0 {
			must(t, errOf(c.destroy(id)))
		}
	}
	try(abi.RDMA_PS_TCP, "10.9.0.1:7000", 0)
	try(abi.RDMA_PS_IB, "10.9.0.1:7000", unix.EADDRINUSE)
	try(abi.RDMA_PS_IB, "10.9.0.2:7000", 0) // rxe
	try(abi.RDMA_PS_UDP, "10.9.0.3:7000", 0)
	try(abi.RDMA_PS_IPOIB, "0.0.0.0:7000", unix.EADDRINUSE)
	try(abi.RDMA_PS_UDP, "[2001:db8:9::1]:7000", 0)
	try(abi.RDMA_PS_TCP, "10.9.0.2:7001", 0)
	try(abi.RDMA_PS_UDP, "0.0.0.0:7001", 0)
	try(abi.RDMA_PS_IB, "10.9.0.3:7001", unix.EADDRINUSE)
	try(abi.RDMA_PS_IB, "10.9.0.2:7001", 0)
}

// TestIWMixed: one listener serves devices of both kinds, each in its way; and the two do
// not find each other.
func TestIWMixed(t *testing.T) {
	k := start(t, Options{Devices: []Device{{Driver: abi.RDMA_DRIVER_SIW}, {}}})
	server, client := openCM(t, k), openCM(t, k)
	all := server.listener(listenUID, netip.AddrPortFrom(netip.IPv6Unspecified(), 7174))
	q := openSiw(t, k).qp()

	// A listener for all addresses refuses those of IPv4; it needs another for them.
	id := client.dial(1, siwAddr)
	must(t, client.connect(id, abi.RdmaUcmConnParam{QpNum: q.num}, ""))
	status(t, "IPv4", client.next(EventRejected, 1), unix.ECONNRESET, "")
	must(t, errOf(server.destroy(all)))
	all = server.id(listenUID)
	on := []byte{1, 0, 0, 0}
	must(t, server.call(abi.RDMA_USER_CM_CMD_SET_OPTION, bytesOf(&abi.RdmaUcmSetOption{
		Id: all, Level: abi.RDMA_OPTION_ID, Optname: abi.RDMA_OPTION_ID_AFONLY, Optlen: 4, Optval: address(t, on),
	}), uapi.NoResponse, nil))
	must(t, server.bind(all, netip.AddrPortFrom(netip.IPv6Unspecified(), 7174), 0))
	must(t, server.listen(all, 8))
	server.listener(listenUID, netip.AddrPortFrom(netip.IPv4Unspecified(), 7174))

	q = q.d.qp()
	for _, a := range []string{"10.9.0.1:7174", "[2001:db8:9::1]:7174", "[fe80::a:1]:7174"} {
		id := client.dial(1, ap(a))
		must(t, client.connect(id, abi.RdmaUcmConnParam{QpNum: q.num}, ""))
		e := server.next(EventConnectRequest, listenUID)
		if p := e.ParamConn(); p.QpNum != 0 || p.PrivateDataLen != 0 {
			t.Errorf("request over iWARP: %+v", p)
		}
		must(t, server.reject(e.Id, 0, ""))
		status(t, a, client.next(EventRejected, 1), unix.ECONNRESET, "")
		q = q.d.qp()
	}
	id = client.dial(2, ap("10.9.0.2:7174"))
	must(t, client.connect(id, abi.RdmaUcmConnParam{QpNum: 5}, ""))
	e := server.next(EventConnectRequest, listenUID)
	if p := e.ParamConn(); p.QpNum != 5 || p.PrivateDataLen != connectData {
		t.Errorf("request over RoCE: %+v", p)
	}

	id = client.id(3)
	must(t, client.bind(id, ap("10.9.0.1:0"), 0))
	must(t, client.resolve(id, ap("10.9.0.2:7174"), 0))
	client.next(EventAddrResolved, 3)
	must(t, client.route(id))
	client.next(EventRouteResolved, 3)
	want(t, "from iWARP to RoCE", client.connect(id, abi.RdmaUcmConnParam{QpNum: q.num}, ""), unix.ECONNREFUSED)
}
