//go:build linux

package tests

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/internal/uapi"
)

// cmCases are raw requests to rdma_cm, by subject.
func cmCases() map[string][]kernelCase {
	return map[string][]kernelCase{
		"frame": cmFrameCases, "address": cmAddressCases, "query": cmQueryCases, "option": cmOptionCases,
		"connection": cmConnectionCases, "state": cmStateCases, "datagram": cmDatagramCases, "multicast": cmMulticastCases,
		"migrate": cmMigrateCases, "gid": cmGIDCases, "new": cmNewCases,
	}
}

// TestKernelCM holds the fake kernel's rdma_cm, and where there is a device that of the real
// one, against the table, and against each other.
func TestKernelCM(t *testing.T) {
	real := realRig(t)
	for _, version := range []string{"5.10", "6.1", "6.12", "7.2"} {
		for driver, id := range map[string]uint32{"rxe": abi.RDMA_DRIVER_RXE, "siw": abi.RDMA_DRIVER_SIW} {
			k := testutil.MustKernel(version)
			compare := real != nil && real.driver == id && sameLine(real.kernel, k)
			if real != nil && !compare {
				continue
			}
			t.Run(driver+" "+version, func(t *testing.T) {
				fake := fakeRig(t, version, id)
				for subject, cases := range cmCases() {
					t.Run(subject, func(t *testing.T) { runCMCases(t, cases, fake, real, driver, k) })
				}
			})
		}
	}
}

func runCMCases(t *testing.T, cases []kernelCase, fake, real *rig, driver string, k testutil.Kernel) {
	for _, c := range cases {
		if driver != "rxe" && strings.HasSuffix(c.name, rxeOnly) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			want := errnoName(c.want.errno(driver, k))
			got := ask(t, fake, c)
			if got.Errno != want {
				t.Errorf("the fake kernel says %s, want %s", got.Errno, want)
			}
			if real == nil {
				return
			}
			truth := ask(t, real, c)
			if truth.Errno != want {
				t.Errorf("the kernel says %s, want %s", truth.Errno, want)
			}
			if d := cmp.Diff(truth, got); d != "" {
				t.Errorf("the fake kernel differs (-real +fake):\n%s", d)
			}
		})
	}
}

// cm is an open rdma_cm file.
type cm struct {
	r  *rig
	f  uapi.File
	fd uint32 // as MIGRATE_ID knows it
}

func (r *rig) cm() cm {
	r.t.Helper()
	before := cmDescriptors()
	f, err := r.sys.Opener.Open("/dev/infiniband/rdma_cm")
	testutil.Must(r.t, err)
	r.t.Cleanup(func() { f.Close() })
	c := cm{r: r, f: f}
	if !r.real() {
		rc, err := f.(syscall.Conn).SyscallConn()
		c.must(err)
		c.must(rc.Control(func(fd uintptr) { c.fd = uint32(fd) }))
		return c
	}
	for fd := range cmDescriptors() {
		if !before[fd] {
			c.fd = fd
		}
	}
	return c
}

// cmDescriptors are the open files of rdma_cm.
func cmDescriptors() map[uint32]bool {
	found := make(map[uint32]bool)
	list, _ := os.ReadDir("/proc/self/fd")
	for _, e := range list {
		to, _ := os.Readlink("/proc/self/fd/" + e.Name())
		if fd, err := strconv.ParseUint(e.Name(), 10, 32); err == nil && strings.HasSuffix(to, "/rdma_cm") {
			found[uint32(fd)] = true
		}
	}
	return found
}

// ip is an address of the device.
func (r *rig) ip() netip.Addr {
	r.t.Helper()
	if r.real() {
		return testutil.Address(r.t, testutil.Device(r.t))
	}
	return netip.MustParseAddr(labIPv4)
}

func (r *rig) real() bool { return r.sys.Root == "/" || r.sys.Root == "" }

func (r *rig) at(port uint16) netip.AddrPort { return netip.AddrPortFrom(r.ip(), port) }

// number is a queue pair number that only this case uses: the kernel remembers for a while
// which were connected.
func (r *rig) number() uint32 {
	return crc32.ChecksumIEEE([]byte(r.t.Name()))&0x7f_ffff | 0x80_0000
}

func (c cm) must(err error) {
	c.r.t.Helper()
	testutil.Must(c.r.t, err)
}

func (c cm) do(cmd uint32, in []byte) error {
	return uapi.Call(nil, c.f, cmd, in, uapi.NoResponse, nil) //nolint:staticcheck // a single attempt
}

func (c cm) ask(cmd uint32, in []byte, at int, out []byte) error {
	return uapi.Call(nil, c.f, cmd, in, at, out) //nolint:staticcheck // a single attempt
}

// write issues a command as bytes.
func (c cm) write(b []byte) error {
	_, err := c.f.Write(nil, b) //nolint:staticcheck // a single attempt
	return err
}

func (c cm) create(uid uint64, ps uint16, typ uint8) (uint32, error) {
	var r abi.RdmaUcmCreateIdResp
	err := c.ask(abi.RDMA_USER_CM_CMD_CREATE_ID, uapi.Bytes(&abi.RdmaUcmCreateId{Uid: uid, Ps: ps, QpType: typ}), 8, uapi.Bytes(&r))
	return r.Id, err
}

func (c cm) id(uid uint64, ps uint16) uint32 {
	c.r.t.Helper()
	id, err := c.create(uid, ps, abi.IB_UVERBS_QPT_RC)
	c.must(err)
	return id
}

func (c cm) tcp(uid uint64) uint32 { c.r.t.Helper(); return c.id(uid, abi.RDMA_PS_TCP) }
func (c cm) udp(uid uint64) uint32 { c.r.t.Helper(); return c.id(uid, abi.RDMA_PS_UDP) }

func (c cm) destroy(id uint32) (uint32, error) {
	var r abi.RdmaUcmDestroyIdResp
	err := c.ask(abi.RDMA_USER_CM_CMD_DESTROY_ID, uapi.Bytes(&abi.RdmaUcmDestroyId{Id: id}), 0, uapi.Bytes(&r))
	return r.EventsReported, err
}

// putAddr writes a socket address and returns its size.
func putAddr(to []byte, a netip.AddrPort) uint16 {
	clear(to)
	binary.BigEndian.PutUint16(to[2:], a.Port())
	if a.Addr().Is4() {
		binary.NativeEndian.PutUint16(to, syscall.AF_INET)
		ip := a.Addr().As4()
		copy(to[4:], ip[:])
		return 16
	}
	binary.NativeEndian.PutUint16(to, syscall.AF_INET6)
	ip := a.Addr().As16()
	copy(to[8:], ip[:])
	return 28
}

func (c cm) bind(id uint32, a netip.AddrPort) error {
	in := abi.RdmaUcmBind{Id: id}
	in.AddrSize = putAddr(uapi.Bytes(&in.Addr), a)
	return c.do(abi.RDMA_USER_CM_CMD_BIND, uapi.Bytes(&in))
}

func (c cm) listen(id uint32, backlog int32) error {
	return c.do(abi.RDMA_USER_CM_CMD_LISTEN, uapi.Bytes(&abi.RdmaUcmListen{Id: id, Backlog: uint32(backlog)}))
}

func (c cm) resolve(id uint32, src, dst netip.AddrPort) error {
	in := abi.RdmaUcmResolveAddr{Id: id, TimeoutMs: 2000}
	if src.IsValid() {
		in.SrcSize = putAddr(uapi.Bytes(&in.SrcAddr), src)
	}
	in.DstSize = putAddr(uapi.Bytes(&in.DstAddr), dst)
	return c.do(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, uapi.Bytes(&in))
}

func (c cm) route(id uint32) error {
	return c.do(abi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, uapi.Bytes(&abi.RdmaUcmResolveRoute{Id: id, TimeoutMs: 2000}))
}

// param is a connection's parameters, with n bytes of private data.
func param(qpn uint32, n int) abi.RdmaUcmConnParam {
	p := abi.RdmaUcmConnParam{
		QpNum: qpn, ResponderResources: 4, InitiatorDepth: 2, FlowControl: 1, RetryCount: 6, RnrRetryCount: 5, Valid: 1,
		PrivateDataLen: uint8(n),
	}
	for i := range n {
		p.PrivateData[i] = byte(i + 1)
	}
	return p
}

func (c cm) connect(id uint32, p abi.RdmaUcmConnParam) error {
	return c.do(abi.RDMA_USER_CM_CMD_CONNECT, uapi.Bytes(&abi.RdmaUcmConnect{Id: id, ConnParam: p, Ece: ece}))
}

var ece = abi.RdmaUcmEce{VendorId: 0x15b3, AttrMod: 0x1234}

func (c cm) accept(id uint32, uid uint64, p abi.RdmaUcmConnParam) error {
	return c.do(abi.RDMA_USER_CM_CMD_ACCEPT, uapi.Bytes(&abi.RdmaUcmAccept{
		Id: id, Uid: uid, ConnParam: p, Ece: abi.RdmaUcmEce{VendorId: 0x15b3, AttrMod: 7},
	}))
}

func (c cm) establish(id uint32) error { return c.accept(id, 0, abi.RdmaUcmConnParam{}) }

func (c cm) reject(id uint32, reason uint8, n int) error {
	in := abi.RdmaUcmReject{Id: id, Reason: reason, PrivateDataLen: uint8(n)}
	for i := range n {
		in.PrivateData[i] = 0xee
	}
	return c.do(abi.RDMA_USER_CM_CMD_REJECT, uapi.Bytes(&in))
}

func (c cm) disconnect(id uint32) error {
	return c.do(abi.RDMA_USER_CM_CMD_DISCONNECT, uapi.Bytes(&abi.RdmaUcmDisconnect{Id: id}))
}

func (c cm) notify(id, event uint32) error {
	return c.do(abi.RDMA_USER_CM_CMD_NOTIFY, uapi.Bytes(&abi.RdmaUcmNotify{Id: id, Event: event}))
}

func (c cm) qpAttr(id, state uint32) (a abi.IbUverbsQpAttr, err error) {
	err = c.ask(abi.RDMA_USER_CM_CMD_INIT_QP_ATTR, uapi.Bytes(&abi.RdmaUcmInitQpAttr{Id: id, QpState: state}), 0, uapi.Bytes(&a))
	return a, err
}

func (c cm) option(id, level, name uint32, val []byte) error {
	in := abi.RdmaUcmSetOption{Id: id, Level: level, Optname: name, Optlen: uint32(len(val))}
	return c.ask(abi.RDMA_USER_CM_CMD_SET_OPTION, uapi.Bytes(&in), 0, val)
}

// poll fetches an event if there is one.
func (c cm) poll() (e abi.RdmaUcmEventResp, err error) {
	err = c.ask(abi.RDMA_USER_CM_CMD_GET_EVENT, uapi.Bytes(&abi.RdmaUcmGetEvent{}), 0, uapi.Bytes(&e))
	return e, err
}

// next waits for an event.
func (c cm) next() (e abi.RdmaUcmEventResp) {
	c.r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c.must(uapi.Call(ctx, c.f, abi.RDMA_USER_CM_CMD_GET_EVENT, uapi.Bytes(&abi.RdmaUcmGetEvent{}), 0, uapi.Bytes(&e)))
	return e
}

// expect waits for an event, which has to be of that type.
func (c cm) expect(typ uint32) abi.RdmaUcmEventResp {
	c.r.t.Helper()
	e := c.next()
	if e.Event != typ {
		c.r.t.Fatalf("event %d with status %d, want event %d", e.Event, int32(e.Status), typ)
	}
	return e
}

// What the kernel calls its events.
const (
	evAddrResolved  = 0
	evAddrError     = 1
	evRouteResolved = 2
	evRequest       = 4
	evResponse      = 5
	evUnreachable   = 7
	evRejected      = 8
	evEstablished   = 9
	evDisconnected  = 10
	evJoin          = 12
	evTimeWait      = 15
	evUser          = 18
)

// of tells what an event of a connected id says.
func (c cm) of(e abi.RdmaUcmEventResp) fields {
	p := e.ParamConn()
	return fields{
		"event": e.Event, "uid": e.Uid, "status": int32(e.Status), "length": p.PrivateDataLen, "data": string(p.PrivateData[:]),
		"rd": p.ResponderResources, "depth": p.InitiatorDepth, "flow": p.FlowControl, "retry": p.RetryCount, "rnr": p.RnrRetryCount,
		"srq": p.Srq, "qp": p.QpNum, "valid": p.Valid, "ece": e.Ece,
	}
}

// ofUD tells what an event of a datagram id says.
func (c cm) ofUD(e abi.RdmaUcmEventResp) fields {
	p := e.ParamUd()
	return fields{
		"event": e.Event, "uid": e.Uid, "status": int32(e.Status), "length": p.PrivateDataLen, "data": string(p.PrivateData[:]),
		"qp": p.QpNum, "qkey": p.Qkey, "ece": e.Ece, "ah": c.ah(&p.AhAttr),
	}
}

// ah is an address vector without what differs between two machines.
func (c cm) ah(a *abi.IbUverbsAhAttr) fields {
	return fields{
		"dgid is ours": a.Grh.Dgid == c.r.ip().As16(), "flow": a.Grh.FlowLabel, "hops": a.Grh.HopLimit,
		"class": a.Grh.TrafficClass, "dlid": a.Dlid, "sl": a.Sl, "bits": a.SrcPathBits, "rate": a.StaticRate,
		"global": a.IsGlobal, "port": a.PortNum, "sgid": c.sgid(a),
	}
}

// sgid tells whether the source is the GID of the device's address.
func (c cm) sgid(a *abi.IbUverbsAhAttr) bool {
	return a.IsGlobal != 0 && c.r.rxe() && uint32(a.Grh.SgidIndex) == c.r.routable().GidIndex
}

// dial brings a new id, bound to a port so that all is the same every time, to the point
// where it may connect.
func (c cm) dial(uid uint64, ps, from, to uint16) uint32 {
	c.r.t.Helper()
	id := c.id(uid, ps)
	c.resolved(id, from, to)
	c.must(c.route(id))
	c.expect(evRouteResolved)
	return id
}

func (c cm) resolved(id uint32, from, to uint16) {
	c.r.t.Helper()
	c.must(c.resolve(id, c.r.at(from), c.r.at(to)))
	c.expect(evAddrResolved)
}

func (c cm) listener(uid uint64, ps, port uint16) uint32 {
	c.r.t.Helper()
	id := c.id(uid, ps)
	c.must(c.bind(id, c.r.at(port)))
	c.must(c.listen(id, 4))
	return id
}
