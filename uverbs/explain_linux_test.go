package uverbs_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// TestRW38PortSpeed: the speed's own query is optional, its errors are not.
func TestRW38PortSpeed(t *testing.T) {
	speed := fakekernel.Method(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT_SPEED)
	for _, errno := range []syscall.Errno{syscall.ENOTTY, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT} {
		k, c, _ := open(t, fakekernel.Options{Kernel: "7.2"})
		k.Fail(speed, errno)
		port, err := c.QueryPort(1)
		testutil.Must(t, err)
		if got, err := c.QueryPortSpeed(1); err != nil || got != port.Rate() || got == 0 {
			t.Errorf("%v: %d Mb/s, %v; want the port's %d", errno, got, err, port.Rate())
		}
	}
	for _, errno := range []syscall.Errno{syscall.EACCES, syscall.ENOMEM, syscall.EINVAL} {
		k, c, _ := open(t, fakekernel.Options{Kernel: "7.2"})
		k.Fail(speed, errno)
		if _, err := c.QueryPortSpeed(1); !errors.Is(err, errno) {
			t.Errorf("got %v, want %v", err, errno)
		}
	}
}

// TestRW38NoSecondTry: a real error of the extended query ends the matter.
func TestRW38NoSecondTry(t *testing.T) {
	basic := false
	k, c, _ := open(t, fakekernel.Options{Log: func(c fakekernel.Call) {
		basic = basic || c.Kind == fakekernel.CallWrite && c.Cmd == abi.IB_USER_VERBS_CMD_QUERY_DEVICE
	}})
	k.Fail(fakekernel.Command(exQueryDevice), syscall.EACCES)
	if _, err := c.QueryDevice(); !errors.Is(err, syscall.EACCES) {
		t.Errorf("got %v, want EACCES", err)
	}
	if basic {
		t.Error("the basic query was tried behind an error that is one")
	}
}

// TestProviderABI: a driver whose interface is too new, or that nobody drives here, is
// listed, and refused with both numbers.
func TestProviderABI(t *testing.T) {
	for _, tt := range []struct {
		device fakekernel.Device
		want   []string
	}{
		{fakekernel.Device{Driver: abi.RDMA_DRIVER_RXE, ABI: 9}, []string{"rxe", "9", "1 to 2"}},
		{fakekernel.Device{Driver: abi.RDMA_DRIVER_SIW, ABI: 4}, []string{"siw", "4", "1"}},
		{fakekernel.Device{Driver: abi.RDMA_DRIVER_MLX5, ABI: 2}, []string{"mlx5", "2", "1 to 1"}},
		{fakekernel.Device{Driver: abi.RDMA_DRIVER_MLX4}, []string{"mlx4", "rxe", "siw", "mlx5"}},
	} {
		_, device := fake(t, fakekernel.Options{Devices: []fakekernel.Device{tt.device}})
		d := device(t)
		for what, err := range map[string]error{"Usable": d.Usable(), "Open": second(d.Open())} {
			if !errors.Is(err, uverbs.ErrNotSupported) {
				t.Errorf("%s: got %v, want ErrNotSupported", what, err)
				continue
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%s says %q, want %q in it", what, err, w)
				}
			}
		}
	}
}

// TestDrivers: what is said to be driven is.
func TestDrivers(t *testing.T) {
	got := map[string][2]uint32{}
	for _, d := range uverbs.Drivers() {
		got[d.Name] = [2]uint32{d.MinABI, d.MaxABI}
	}
	for name, devices := range map[string][]fakekernel.Device{"rxe": rxe, "siw": siw, "mlx5": mlx5} {
		_, device := fake(t, fakekernel.Options{Devices: devices})
		d := device(t)
		if r, ok := got[name]; !ok || d.Driver() != name || d.ABI() < r[0] || d.ABI() > r[1] || d.Usable() != nil {
			t.Errorf("%s: driver %s, ABI %d, range %v", name, d.Driver(), d.ABI(), r)
		}
	}
	if len(got) != 3 {
		t.Errorf("got %v, want three drivers", got)
	}
}

// TestRW31OtherShortage: ENOMEM of something else than registered memory does not blame the
// limit.
func TestRW31OtherShortage(t *testing.T) {
	k, c, pd := open(t, fakekernel.Options{})
	cq, err := c.CreateCQ(4, nil)
	testutil.Must(t, err)
	defer cq.Close()
	for what, match := range map[string]func(fakekernel.Call) bool{
		"queue":      fakekernel.Method(abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE),
		"queue pair": fakekernel.Method(abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_CREATE),
		"domain":     fakekernel.Command(abi.IB_USER_VERBS_CMD_ALLOC_PD),
	} {
		cancel := k.Fail(match, syscall.ENOMEM)
		var err error
		switch what {
		case "queue":
			_, err = c.CreateCQ(4, nil)
		case "domain":
			_, err = c.AllocPD()
		default:
			_, err = pd.CreateQP(&uverbs.QPInitAttr{SendCQ: cq, Cap: uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
		}
		cancel()
		if !errors.Is(err, syscall.ENOMEM) || strings.Contains(err.Error(), "MEMLOCK") {
			t.Errorf("%s: got %v, want ENOMEM and no word of a limit", what, err)
		}
	}
}

// TestAsyncEvents: an event names the object, while it is there, and the port.
func TestAsyncEvents(t *testing.T) {
	k, s := suiteOn(t, fakekernel.Options{Devices: rxe})
	p := s.NewEndpoint(t)
	defer p.Close(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	next := func() uverbs.AsyncEvent {
		t.Helper()
		ev, err := p.Context.NextAsyncEvent(ctx)
		testutil.Must(t, err)
		return ev
	}
	if !k.RaiseQP("rxe0", p.QP.Num(), uint32(uverbs.EventQPFatal)) {
		t.Fatal("there is no such queue pair")
	}
	if ev := next(); ev.Type != uverbs.EventQPFatal || ev.QP != p.QP || ev.CQ != nil || ev.SRQ != nil || ev.Port != 0 {
		t.Errorf("got %+v, want the queue pair's", ev)
	}
	for _, typ := range []uverbs.AsyncEventType{uverbs.EventPortActive, uverbs.EventPortError, uverbs.EventGIDChange} {
		k.RaisePort("rxe0", uint32(typ))
		if ev := next(); ev.Type != typ || ev.Port != 1 || ev.QP != nil {
			t.Errorf("got %+v, want %v of port 1", ev, typ)
		}
	}
	// One that comes when its object is gone names nothing, and nothing else.
	k.RaiseQP("rxe0", p.QP.Num(), uint32(uverbs.EventCommEstablished))
	testutil.Must(t, p.QP.Close())
	k.RaisePort("rxe0", uint32(uverbs.EventGIDChange))
	ev := next()
	if ev.Type == uverbs.EventCommEstablished {
		if ev.QP != nil {
			t.Errorf("got %+v of a closed queue pair", ev)
		}
		ev = next()
	}
	if ev.Type != uverbs.EventGIDChange {
		t.Errorf("got %+v, want the port's", ev)
	}
}
