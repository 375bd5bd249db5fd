//go:build linux

package verbstest

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) queries(t *testing.T) {
	testutil.NoLeaks(t)
	dev := u.Device(t)
	c, err := dev.Open()
	testutil.Must(t, err)
	defer c.Close()
	attr, err := c.QueryDevice()
	testutil.Must(t, err)
	if attr.NodeGUID != dev.NodeGUID() || attr.MaxQP == 0 || int(attr.NumPorts) != dev.NumPorts() {
		t.Errorf("device says %+v, the listing GUID %#x and %d ports", attr, dev.NodeGUID(), dev.NumPorts())
	}
	port, err := c.QueryPort(1)
	testutil.Must(t, err)
	if port.State != uverbs.PortActive || !port.Ethernet || port.ActiveMTU.Bytes() == 0 {
		t.Errorf("port says %+v, want active Ethernet", port)
	}
	if _, err := c.QueryPort(9); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("port 9: got %v, want EINVAL", err)
	}
	key, err := c.QueryPKey(1, 0)
	testutil.Must(t, err)
	if key != 0xffff {
		t.Errorf("P_Key 0 is %#x, want 0xffff", key)
	}
	table, err := c.GIDTable()
	testutil.Must(t, err)
	e := firstRoutable(t, c)
	if got, err := uverbs.FindGID(table, 1, e.GID.Addr()); err != nil || got != e {
		t.Errorf("FindGID gives %+v, %v; want %+v", got, err, e)
	}
}

// rw28ReadOnlyMemory: what is only read needs no write access.
func (u *Suite) rw28ReadOnlyMemory(t *testing.T) {
	testutil.NoLeaks(t)
	a, b := u.newPair(t, 8192)
	file, err := os.Create(t.TempDir() + "/data")
	testutil.Must(t, err)
	defer file.Close()
	want := make([]byte, 8192)
	testutil.Fill(want, 28)
	_, err = file.Write(want)
	testutil.Must(t, err)
	mem, err := syscall.Mmap(int(file.Fd()), 0, len(want), syscall.PROT_READ, syscall.MAP_PRIVATE)
	testutil.Must(t, err)
	defer syscall.Munmap(mem)
	mr, err := a.pd.RegMR(mem, 0)
	testutil.Must(t, err)
	defer mr.Close()
	_, err = a.qp.PostSend([]uverbs.SendWR{{
		ID: 1, Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{mr.SGE(0, len(want))},
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
	}})
	testutil.Must(t, err)
	a.ok(t, 1, uverbs.WCRDMAWrite)
	if string(b.mr.Bytes()) != string(want) {
		t.Error("the read-only memory did not arrive")
	}
	if _, err := a.pd.RegMR(mem, uverbs.AccessLocalWrite); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("local write on read-only memory: got %v, want EFAULT", err)
	}
	if _, err := a.pd.RegMR(mem, uverbs.AccessRemoteWrite); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("remote write without local write: got %v, want ErrInvalid", err)
	}
}

// goHeapMemory: the caller's slice may lie on the Go heap.
func (u *Suite) goHeapMemory(t *testing.T) {
	testutil.NoLeaks(t)
	a, b := u.newPair(t, 4096)
	src, dst := make([]byte, 3000), make([]byte, 3000)
	testutil.Fill(src, 5)
	from, err := a.pd.RegMR(src, 0)
	testutil.Must(t, err)
	defer from.Close()
	to, err := b.pd.RegMR(dst, uverbs.AccessLocalWrite)
	testutil.Must(t, err)
	defer to.Close()
	_, err = b.qp.PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{to.SGE(0, 3000)}}})
	testutil.Must(t, err)
	_, err = a.qp.PostSend([]uverbs.SendWR{{ID: 2, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{from.SGE(0, 3000)}}})
	testutil.Must(t, err)
	a.ok(t, 2, uverbs.WCSend)
	b.ok(t, 1, uverbs.WCRecv)
	if string(src) != string(dst) {
		t.Error("the memories differ")
	}
}
