package uverbs_test

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func open(t testing.TB, o fakekernel.Options) (*fakekernel.Kernel, *uverbs.Context, *uverbs.PD) {
	t.Helper()
	k, device := fake(t, o)
	c, err := device(t).Open()
	testutil.Must(t, err)
	pd, err := c.AllocPD()
	testutil.Must(t, err)
	t.Cleanup(func() {
		if err := errors.Join(pd.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		if n := k.Counts(); n != (fakekernel.Counts{}) {
			t.Errorf("objects are left in the kernel: %+v", n)
		}
	})
	return k, c, pd
}

// TestRW31Memlock: the limit is named where it can be the reason, and nowhere else.
func TestRW31Memlock(t *testing.T) {
	_, _, pd := open(t, fakekernel.Options{Memlock: 64 << 10})
	_, err := pd.AllocMR(1<<20, 0)
	if !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("got %v, want ENOMEM", err)
	}
	var limit syscall.Rlimit
	const memlock = 8 // RLIMIT_MEMLOCK
	testutil.Must(t, syscall.Getrlimit(memlock, &limit))
	limited := limit.Cur != ^uint64(0)
	if named := strings.Contains(err.Error(), "RLIMIT_MEMLOCK"); named != limited {
		t.Errorf("this process is limited: %v; the error is %q", limited, err)
	}
	for range 1000 { // nothing stays pinned
		mr, err := pd.AllocMR(60<<10, 0)
		testutil.Must(t, err)
		testutil.Must(t, mr.Close())
	}
}

// TestOddMemory: what cannot be registered is an error, not a panic.
func TestOddMemory(t *testing.T) {
	_, _, pd := open(t, fakekernel.Options{})
	for _, size := range []int{0, -1} {
		if _, err := pd.AllocMR(size, 0); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("size %d: got %v, want ErrInvalid", size, err)
		}
	}
	for _, b := range [][]byte{nil, {}} {
		if _, err := pd.RegMR(b, 0); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("empty slice: got %v, want ErrInvalid", err)
		}
	}
	if _, err := pd.AllocMR(4096, uverbs.AccessRemoteWrite); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("remote write without local write: got %v, want ErrInvalid", err)
	}
}

// TestPieceOutside: a piece beyond its region is refused, and with it the request.
func TestPieceOutside(t *testing.T) {
	_, c, pd := open(t, fakekernel.Options{})
	mr, err := pd.AllocMR(100, uverbs.AccessLocalWrite)
	testutil.Must(t, err)
	defer mr.Close()
	cq, err := c.CreateCQ(4, nil)
	testutil.Must(t, err)
	defer cq.Close()
	qp, err := pd.CreateQP(&uverbs.QPInitAttr{SendCQ: cq, Cap: uverbs.QPCap{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1}})
	testutil.Must(t, err)
	defer qp.Close()
	testutil.Must(t, qp.Modify(&uverbs.QPAttr{State: uverbs.StateInit, PortNum: 1},
		uverbs.QPAttrState|uverbs.QPAttrPKeyIndex|uverbs.QPAttrPort|uverbs.QPAttrAccessFlags))
	for _, r := range [][2]int{{0, 101}, {100, 1}, {-1, 1}, {0, -1}, {1 << 40, 0}} {
		if n, err := qp.PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{mr.SGE(r[0], r[1])}}}); n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%v: posted %d, %v; want ErrInvalid", r, n, err)
		}
	}
	for _, r := range [][2]int{{0, 100}, {100, 0}} {
		if _, err := qp.PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{mr.SGE(r[0], r[1])}}}); err != nil {
			t.Errorf("%v: %v", r, err)
		}
	}
	if _, err := qp.PostSend([]uverbs.SendWR{{}}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("send in INIT: got %v, want EINVAL", err)
	}
}

// TestRW38OptionalQuery: the extended query is optional, its errors are not.
func TestRW38OptionalQuery(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOTTY, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT} {
		k, c, _ := open(t, fakekernel.Options{})
		k.Fail(fakekernel.Command(exQueryDevice), errno)
		if attr, err := c.QueryDevice(); err != nil || attr.MaxQP == 0 {
			t.Errorf("%v: got %+v, %v; want the basic answer", errno, attr, err)
		}
	}
	for _, errno := range []syscall.Errno{syscall.EACCES, syscall.ENOMEM} {
		k, c, _ := open(t, fakekernel.Options{})
		k.Fail(fakekernel.Command(exQueryDevice), errno)
		if _, err := c.QueryDevice(); !errors.Is(err, errno) {
			t.Errorf("got %v, want %v", err, errno)
		}
	}
}

// TestQueryDeviceOnce: what a device can do is asked for until the kernel has answered.
func TestQueryDeviceOnce(t *testing.T) {
	k, c, _ := open(t, fakekernel.Options{})
	answers := k.Fail(fakekernel.Command(exQueryDevice), syscall.ENOMEM)
	if _, err := c.QueryDevice(); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("got %v, want ENOMEM", err)
	}
	answers()
	first, err := c.QueryDevice()
	if err != nil || first.MaxQP == 0 {
		t.Fatalf("got %+v, %v", first, err)
	}
	k.Fail(fakekernel.Command(exQueryDevice), syscall.ENOMEM)
	if again, err := c.QueryDevice(); err != nil || again != first {
		t.Errorf("the kernel was asked again: %+v, %v", again, err)
	}
}

const exQueryDevice = 0x80000001

// TestForgottenContext: what a program forgets is closed when it is collected.
func TestForgottenContext(t *testing.T) {
	k, device := fake(t, fakekernel.Options{})
	func() {
		c, err := device(t).Open()
		testutil.Must(t, err)
		pd, err := c.AllocPD()
		testutil.Must(t, err)
		_, err = pd.RegMR(make([]byte, 4096), 0)
		testutil.Must(t, err)
	}()
	for range 100 {
		runtime.GC()
		if k.Counts().MRs == 0 {
			return
		}
	}
	t.Errorf("objects are left in the kernel: %+v", k.Counts())
}
