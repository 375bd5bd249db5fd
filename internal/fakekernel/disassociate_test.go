//go:build linux

package fakekernel

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
)

func TestDisassociate(t *testing.T) {
	k := start(t, Options{Devices: []Device{{}, {}}})
	a, b := openNode(t, k, 0).qp(), openNode(t, k, 1).qp()
	connect(t, a, b, 1, 7)
	var resp abi.RxeCreateCqResp
	var size uint32
	must(t, createCQ(4, &size, bytesOf(&resp)).Do(a.d.f)) // not mapped
	mem, err := a.d.f.Map(int64(resp.Mi.Offset), int(resp.Mi.Size), uapi.ProtRead|uapi.ProtWrite)
	must(t, err)
	a.cq.arm(0)
	a.do(provider.SendWR{Opcode: provider.OpRDMAWrite}) // an event that nobody reads
	if mem[4] == 0 {
		t.Error("the mapped queue is empty before")
	}
	if !k.Disassociate("rxe0") || k.Disassociate("rxe0") || k.Disassociate("rxe7") {
		t.Error("Disassociate mistakes which devices there are")
	}
	for i, c := range mem {
		if c != 0 {
			t.Fatalf("byte %d of a mapping is %d", i, c)
		}
	}
	mem[0] = 1 // still there
	must(t, a.d.f.Unmap(mem))

	_, err = a.cq.ch.Read(t.Context(), make([]byte, 8))
	want(t, "completion channel", err, unix.EIO)
	a.d.wantAsync("last", [2]uint64{0, asyncDeviceFatal})
	want(t, "command", a.d.invoke(uapi.AllocPD, make([]byte, 8), make([]byte, 4)), unix.EIO)
	want(t, "doorbell", a.bell.Ring(), unix.EIO)
	want(t, "create", createCQ(4, &size, bytesOf(&resp)).Do(a.d.f), unix.EIO)
	_, err = a.d.f.Map(int64(resp.Mi.Offset), 4096, 3)
	want(t, "map", err, unix.EIO)
	end := func(pd uint32) error {
		return cmd(uapi.PDDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, pd).Do(a.d.f)
	}
	want(t, "destroy, though it is in use", end(a.pd), 0)
	want(t, "destroy twice", end(a.pd), unix.ENOENT)
	want(t, "destroy the queue pair", a.destroy(), 0)
	want(t, "deregister", a.d.deregMR(a.mr.MrHandle), 0)

	if wc := b.do(provider.SendWR{Opcode: provider.OpSend}); wc.Status != provider.WCRetryExceeded {
		t.Errorf("the peer's send: %v", wc.Status)
	}
	must(t, a.d.f.Close())
	if c := k.Counts(); c.Contexts != 1 || c.MRs != 1 || c.QPs != 1 {
		t.Errorf("left: %+v, want what the peer has", c)
	}
}
