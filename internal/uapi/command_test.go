package uapi

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
)

// TestCommandFrame: what is short travels by value, what is long by address, and the
// kernel's answers come back.
func TestCommandFrame(t *testing.T) {
	var resp uint32
	var driver [16]byte
	f := &stub{ioctl: func(hdr *abi.IbUverbsIoctlHdr, attrs []abi.IbUverbsAttr) error {
		if hdr.ObjectId != abi.UVERBS_OBJECT_CQ || hdr.MethodId != abi.UVERBS_METHOD_CQ_CREATE || hdr.DriverId != 14 {
			t.Errorf("header is %+v", hdr)
		}
		if want := 24 + 16*len(attrs); int(hdr.Length) != want {
			t.Errorf("length is %d, want %d", hdr.Length, want)
		}
		var ids, lens []uint16
		for i := range attrs {
			ids, lens = append(ids, attrs[i].AttrId), append(lens, attrs[i].Len)
			if attrs[i].Flags != abi.UVERBS_ATTR_F_MANDATORY {
				t.Errorf("attribute %d has flags %#x", attrs[i].AttrId, attrs[i].Flags)
			}
		}
		if diff := cmp.Diff([]uint16{0, 1, 2, 4, 6, 0x1001}, ids); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]uint16{0, 4, 8, 4, 4, 16}, lens); diff != "" {
			t.Error(diff)
		}
		if got := Bytes(attrs[1].Data())[:4]; !bytes.Equal(got, Bytes(new(uint32(77)))) {
			t.Errorf("the 32-bit value travels as %x", got)
		}
		*attrs[0].Data() = 9
		copy(at(*attrs[4].Data(), 4), Bytes(new(uint32(88))))
		copy(at(*attrs[5].Data(), 16), "driver's answer!")
		return nil
	}}
	cmd := NewCommand(CQCreate, 14).
		New(abi.UVERBS_ATTR_CREATE_CQ_HANDLE).
		In32(abi.UVERBS_ATTR_CREATE_CQ_CQE, 77).
		In64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 1).
		In32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0).
		Out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, Bytes(&resp)).
		Driver(nil, driver[:])
	if err := cmd.Do(f); err != nil {
		t.Fatal(err)
	}
	if got := cmd.Result(abi.UVERBS_ATTR_CREATE_CQ_HANDLE); got != 9 || resp != 88 || string(driver[:]) != "driver's answer!" {
		t.Errorf("answers are %d, %d, %q", got, resp, driver)
	}
}

// TestCommandMistakes: a request that the schema does not allow never reaches the kernel.
func TestCommandMistakes(t *testing.T) {
	f := &stub{ioctl: func(*abi.IbUverbsIoctlHdr, []abi.IbUverbsAttr) error {
		t.Error("the kernel was asked")
		return nil
	}}
	for want, cmd := range map[string]*Command{
		"attribute 0 is missing": NewCommand(PDDestroy, 0),
		"not in the schema":      NewCommand(PDDestroy, 0).Destroy(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, 1).In32(7, 1),
		"another class":          NewCommand(PDDestroy, 0).In32(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, 1),
		"has 3 bytes, want 4 to": NewCommand(CQCreate, 0).In(abi.UVERBS_ATTR_CREATE_CQ_CQE, make([]byte, 3)),
	} {
		if err := cmd.Do(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestDoorbellForms: write() first; where the credentials changed, INVOKE_WRITE from then on.
func TestDoorbellForms(t *testing.T) {
	var arena Arena
	defer arena.Close()
	var writes, ioctls int
	refuse := false
	f := &stub{
		write: func(p []byte) (int, error) {
			writes++
			if want := 8 + 24; len(p) != want {
				t.Errorf("%d bytes written, want %d", len(p), want)
			}
			if refuse {
				return 0, syscall.EACCES
			}
			return len(p), nil
		},
		ioctl: func(_ *abi.IbUverbsIoctlHdr, attrs []abi.IbUverbsAttr) error {
			ioctls++
			if got := *attrs[0].Data(); got != abi.IB_USER_VERBS_CMD_POST_SEND {
				t.Errorf("invoked command %d", got)
			}
			return nil
		},
	}
	body := abi.IbUverbsPostSend{QpHandle: 5, WqeSize: 56}
	d, err := NewDoorbell(f, &arena, 14, PostSend, Bytes(&body))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, refuse = range []bool{false, true, true} {
		if err := d.Ring(); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 2 || ioctls != 2 {
		t.Errorf("%d writes and %d ioctls, want 2 and 2", writes, ioctls)
	}
	refuse = false
	f.write = func([]byte) (int, error) { return 0, syscall.EINVAL }
	d2, err := NewDoorbell(f, &arena, 14, PostSend, Bytes(&body))
	if err != nil {
		t.Fatal(err)
	}
	defer d2.Close()
	if err := d2.Ring(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("got %v, want EINVAL", err)
	}
}

func TestDoorbellAllocatesNothing(t *testing.T) {
	var arena Arena
	defer arena.Close()
	f := &stub{write: func(p []byte) (int, error) { return len(p), nil }}
	d, err := NewDoorbell(f, &arena, 14, PostSend, Bytes(&abi.IbUverbsPostSend{}))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if n := testing.AllocsPerRun(100, func() { d.Ring() }); n != 0 {
		t.Errorf("%v allocations a ring", n)
	}
}

func TestCall(t *testing.T) {
	f := &stub{write: func(p []byte) (int, error) {
		if want := 8 + 24; len(p) != want || p[0] != abi.RDMA_USER_CM_CMD_CREATE_ID || p[4] != 24 || p[6] != 4 {
			t.Errorf("frame is %x", p)
		}
		var addr uint64
		copy(Bytes(&addr), p[8+8:])
		copy(at(addr, 4), Bytes(new(uint32(3))))
		return len(p), nil
	}}
	in := abi.RdmaUcmCreateId{Uid: 1}
	var resp abi.RdmaUcmCreateIdResp
	if err := Call(nil, f, abi.RDMA_USER_CM_CMD_CREATE_ID, Bytes(&in), 8, Bytes(&resp)); err != nil || resp.Id != 3 {
		t.Errorf("got id %d, %v", resp.Id, err)
	}
	f.write = func(p []byte) (int, error) { return 4, nil }
	if err := Call(nil, f, 0, Bytes(&in), NoResponse, nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("short write: got %v, want EIO", err)
	}
}

func TestSchemaIsSound(t *testing.T) {
	for _, m := range schema {
		if Lookup(m.Object, m.ID) != m {
			t.Errorf("%s is in the schema twice", m.Name)
		}
		seen := map[uint16]bool{}
		for _, a := range m.Attrs {
			if seen[a.ID] {
				t.Errorf("%s has attribute %d twice", m.Name, a.ID)
			}
			seen[a.ID] = true
		}
	}
	for _, w := range writeCmds {
		if LookupWrite(w.ID) != w {
			t.Errorf("%s is in the table twice", w.Name)
		}
	}
	if Lookup(99, 0) != nil || LookupWrite(99) != nil {
		t.Error("the unknown was found")
	}
}
