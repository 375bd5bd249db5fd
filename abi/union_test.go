package abi

import (
	"reflect"
	"testing"
)

func TestUnionSharesMemory(t *testing.T) {
	var a IbUverbsAttr
	*a.DataS64() = -2
	if got := *a.Data(); got != 1<<64-2 {
		t.Errorf("data after data_s64 = -2: got %#x", got)
	}
	a.AttrDataEnumData().ElemId = 7
	if got := bytesOf(&a)[6]; got != 7 {
		t.Errorf("byte 6 after attr_data.enum_data.elem_id = 7: got %d", got)
	}

	var wr RxeSendWr
	wr.ExImmData().Set(0x01020304)
	if got, want := bytesOf(&wr)[20:24], "\x01\x02\x03\x04"; string(got) != want {
		t.Errorf("bytes 20 to 24 after ex.imm_data = 0x01020304: got % x", got)
	}
	wr.WrRdma().Rkey = 5
	if got := wr.Wr[1] & 0xffffffff; !bigEndian && got != 5 {
		t.Errorf("second word of wr after wr.rdma.rkey = 5: got %#x", got)
	}
	wr.WrUd().Av.SgidAddrSockaddrIn6().Sin6Port.Set(0x1234)
	if off := reflect.ValueOf(&wr.WrUd().Av).Pointer() - reflect.ValueOf(&wr).Pointer(); off != 56 {
		t.Errorf("offset of wr.ud.av: got %d, want 56", off)
	}
}

// The union of rdma_ucm_event_resp starts at byte 20, on no multiple of 8. Its
// members need no more than 4, so they may be pointed to.
func TestEventParamAlignment(t *testing.T) {
	var ev RdmaUcmEventResp
	for name, p := range map[string]any{"conn": ev.ParamConn(), "ud": ev.ParamUd()} {
		v := reflect.ValueOf(p)
		if off := v.Pointer() - reflect.ValueOf(&ev).Pointer(); off != 20 {
			t.Errorf("offset of param.%s: got %d, want 20", name, off)
		}
		if a := v.Type().Elem().Align(); a > 4 {
			t.Errorf("alignment of param.%s: got %d, want at most 4", name, a)
		}
	}
}

// Every accessor of every type is called: it must point inside the struct, and as
// its type's alignment asks. Under -race the run-time checks each pointer as well.
func TestAccessorsStayInside(t *testing.T) {
	calls := 0
	for tag, typ := range goTypes {
		v := reflect.New(typ)
		base := v.Pointer()
		for i := range v.NumMethod() {
			m := v.Type().Method(i)
			if m.Type.NumIn() != 1 || m.Type.NumOut() != 1 || m.Type.Out(0).Kind() != reflect.Pointer {
				continue
			}
			p, elem := v.Method(i).Call(nil)[0].Pointer(), m.Type.Out(0).Elem()
			calls++
			if p < base || p+elem.Size() > base+typ.Size() {
				t.Errorf("%s: %s leaves the struct", tag, m.Name)
			}
			if (p-base)%uintptr(elem.Align()) != 0 || elem.Align() > typ.Align() {
				t.Errorf("%s: %s is not aligned", tag, m.Name)
			}
		}
	}
	if calls < 50 {
		t.Errorf("called %d accessors, want them all", calls)
	}
}
