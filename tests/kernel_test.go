//go:build linux

package tests

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/internal/uapi"
)

// What this module relies on in the kernel has tests of its own: the same raw requests go
// to the real kernel and to the fake one of the same version, both answers must be as the
// table says, and equal in what else they tell. Where there is no device the fake kernel is
// held against the table alone.

// rig is an open device of one of the two kernels.
type rig struct {
	t      testing.TB
	sys    *discover.System
	path   string
	driver uint32
	kernel testutil.Kernel
	f      uapi.File
	pd     uint32
}

// fields are what an answer tells besides its errno, without what differs from run to run.
type fields map[string]any

// kernelCase is one request, with what has to be there before it.
type kernelCase struct {
	name string
	want rules
	do   func(r *rig) (fields, error)
}

// rxeOnly at the end of a name: on siw the fake kernel does less, and nothing relies on it.
const rxeOnly = " (rxe)"

// rules say what errno to expect; the last that applies counts, none is success.
type rules []rule

type rule struct {
	driver string // "" for all
	from   string // kernel version, "" for all
	errno  syscall.Errno
}

func always(e syscall.Errno) rules { return rules{{errno: e}} }

// siw is for requests that only siw refuses.
func onlySiw(e syscall.Errno) rules { return rules{{driver: "siw", errno: e}} }

func (rs rules) errno(driver string, k testutil.Kernel) (want syscall.Errno) {
	for _, r := range rs {
		if (r.driver == "" || r.driver == driver) && (r.from == "" || k.AtLeast(testutil.MustKernel(r.from))) {
			want = r.errno
		}
	}
	return want
}

// answer is what a kernel said.
type answer struct {
	Errno  string
	Fields fields
}

// kernelCases are all of them, by object.
func kernelCases() map[string][]kernelCase {
	return map[string][]kernelCase{
		"device": deviceCases, "protocol": protocolCases, "memory": memoryCases, "cq": cqCases,
		"qp": qpCases, "modify": modifyCases, "srq": srqCases, "address": addressCases, "window": windowCases,
		"missing": missingCases, "files": fileCases, "connect": connectCases,
	}
}

// TestKernelRequests holds the fake kernel, and where there is a device the real one,
// against the table, and against each other.
func TestKernelRequests(t *testing.T) {
	real := realRig(t)
	for _, version := range []string{"5.10", "6.1", "6.12", "7.2"} {
		for driver, id := range map[string]uint32{"rxe": abi.RDMA_DRIVER_RXE, "siw": abi.RDMA_DRIVER_SIW} {
			k := testutil.MustKernel(version)
			compare := real != nil && real.driver == id && sameLine(real.kernel, k)
			if real != nil && !compare {
				continue // in the lab only what the lab can tell
			}
			t.Run(driver+" "+version, func(t *testing.T) { runKernelCases(t, fakeRig(t, version, id), real, driver, k) })
		}
	}
}

func runKernelCases(t *testing.T, fake, real *rig, driver string, k testutil.Kernel) {
	for object, cases := range kernelCases() {
		t.Run(object, func(t *testing.T) {
			if object == "connect" && driver == "siw" {
				return // rdma_cm alone moves its queue pairs
			}
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
		})
	}
}

// sameLine tells whether two versions are of the same long-term line: what runs as "newest"
// may be newer than the newest that the fake plays.
func sameLine(running, k testutil.Kernel) bool {
	line := func(k testutil.Kernel) int {
		lines := []string{"5.10", "6.1", "6.12", "7.2"}
		return slices.IndexFunc(lines, func(s string) bool { return !k.AtLeast(testutil.MustKernel(s)) })
	}
	return line(running) == line(k)
}

func fakeRig(t testing.TB, version string, driver uint32) *rig {
	t.Helper()
	k := fakekernel.New(fakekernel.Options{Root: t.TempDir(), Kernel: version, Devices: []fakekernel.Device{{Driver: driver}}})
	t.Cleanup(k.Close)
	return &rig{sys: k.System(), path: "/dev/infiniband/uverbs0", driver: driver, kernel: testutil.MustKernel(version)}
}

// realRig is a device of the running kernel, nil if there is none.
func realRig(t testing.TB) *rig {
	t.Helper()
	if os.Getenv("RDMA_TEST_REQUIRE") != "1" {
		if devs, err := discover.Host().Devices(); err != nil || len(devs) == 0 {
			return nil
		}
	}
	want := testutil.Device(t).Name()
	devs, err := discover.Host().Devices()
	testutil.Must(t, err)
	d, err := discover.Find(devs, want)
	testutil.Must(t, err)
	return &rig{sys: discover.Host(), path: d.Node, driver: d.Driver, kernel: testutil.RunningKernel()}
}

// ask runs one case on a freshly opened device.
func ask(t testing.TB, on *rig, c kernelCase) answer {
	t.Helper()
	r := *on
	r.t = t
	r.begin()
	f, err := c.do(&r)
	var errno syscall.Errno
	if err != nil && !errors.As(err, &errno) {
		t.Fatalf("not an errno: %v", err)
	}
	return answer{errnoName(errno), f}
}

// begin opens the device and makes a protection domain.
func (r *rig) begin() {
	r.t.Helper()
	r.f = r.open()
	r.must(r.cmd(uapi.GetContext).Driver(nil, r.contextOut()).Do(r.f))
	var pd abi.IbUverbsAllocPdResp
	r.must(r.invoke(uapi.AllocPD, uapi.Bytes(&abi.IbUverbsAllocPd{}), uapi.Bytes(&pd), nil, nil))
	r.pd = pd.PdHandle
}

func (r *rig) open() uapi.File {
	r.t.Helper()
	f, err := r.sys.Opener.Open(r.path)
	testutil.Must(r.t, err)
	r.t.Cleanup(func() { f.Close() })
	return f
}

func (r *rig) rxe() bool { return r.driver == abi.RDMA_DRIVER_RXE }

func (r *rig) contextOut() []byte {
	if r.rxe() {
		return nil
	}
	return uapi.Bytes(new(abi.SiwUrespAllocCtx))
}

func (r *rig) cmd(m *uapi.Method) *uapi.Command { return uapi.NewCommand(m, r.driver) }

func (r *rig) invoke(w *uapi.WriteCmd, in, out, drvIn, drvOut []byte) error {
	return uapi.Invoke(r.f, r.driver, w, in, out, drvIn, drvOut)
}

// must is for what a request needs to be there.
func (r *rig) must(err error) {
	r.t.Helper()
	testutil.Must(r.t, err)
}

func errnoName(e syscall.Errno) string {
	if e == 0 {
		return "success"
	}
	for name, v := range map[string]syscall.Errno{
		"EPERM": syscall.EPERM, "ENOENT": syscall.ENOENT, "EIO": syscall.EIO, "EBADF": syscall.EBADF, "EAGAIN": syscall.EAGAIN,
		"ENOMEM": syscall.ENOMEM, "EACCES": syscall.EACCES, "EFAULT": syscall.EFAULT, "EBUSY": syscall.EBUSY,
		"EEXIST": syscall.EEXIST, "ENODEV": syscall.ENODEV, "EINVAL": syscall.EINVAL, "ENOSPC": syscall.ENOSPC,
		"ENOSYS": syscall.ENOSYS, "ENODATA": syscall.ENODATA, "EPROTO": syscall.EPROTO, "EMSGSIZE": syscall.EMSGSIZE,
		"EPROTONOSUPPORT": syscall.EPROTONOSUPPORT, "EOPNOTSUPP": syscall.EOPNOTSUPP, "ENOTCONN": syscall.ENOTCONN,
		"ENOTTY": syscall.ENOTTY, "ENETUNREACH": syscall.ENETUNREACH, "ETIMEDOUT": syscall.ETIMEDOUT,
	} {
		if v == e {
			return name
		}
	}
	return fmt.Sprintf("errno %d", int(e))
}
