package howto

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// TestManyLeave: clients that leave in the middle of everything take no slot with them.
func TestManyLeave(t *testing.T) {
	for name, driver := range map[string]uint32{"rxe": abi.RDMA_DRIVER_RXE, "siw": abi.RDMA_DRIVER_SIW, "mlx5": abi.RDMA_DRIVER_MLX5} {
		t.Run(name, func(t *testing.T) {
			testutil.NoLeaks(t)
			ctx, dev, system, end := fake(fakekernel.Options{Devices: []fakekernel.Device{{Driver: driver}}})
			defer end()
			const slots = 4
			addr, stop := many(ctx, dev, "10.9.0.1:0", slots, system)
			defer stop()
			var leaving sync.WaitGroup
			for range 40 {
				leaving.Go(func() { leave(ctx, addr, system) })
			}
			leaving.Wait()
			c := Caller{Addr: addr, System: []rdmacm.Option{system}}
			defer c.Close()
			for i := range 3 * slots {
				want := fmt.Sprint("message ", i)
				if got, err := c.Call(ctx, want); err != nil || got != want || c.Dials != 1 && name != "siw" { // a message that finds no receive ends a connection of siw
					t.Fatalf("message %d: %q, %v, connected %d times", i, got, err, c.Dials)
				}
			}
		})
	}
}

// leave sends a few messages and goes, without a look at the answers.
func leave(ctx context.Context, addr string, system rdmacm.Option) {
	conn, err := rdmacm.Dial(ctx, addr, &rdmacm.Options{System: []rdmacm.Option{system}})
	if err != nil {
		return
	}
	defer conn.Close()
	mr, err := conn.AllocMR(slotSize, uverbs.AccessLocalWrite)
	if err != nil {
		return
	}
	for range 3 {
		conn.QP().PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{mr.SGE(0, slotSize)}}})
		conn.QP().PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{mr.SGE(0, 100)}}})
	}
}

// TestCallerGivesUp: what a new connection does not mend is not tried again, and nothing is
// tried without end.
func TestCallerGivesUp(t *testing.T) {
	testutil.NoLeaks(t)
	ctx, dev, system, end := fake(fakekernel.Options{})
	defer end()
	addr, stop := many(ctx, dev, "10.9.0.1:0", 4, system)
	c := Caller{Addr: addr, System: []rdmacm.Option{system}}
	defer c.Close()
	if _, err := c.Call(ctx, string(make([]byte, slotSize+1))); !errors.Is(err, uverbs.ErrInvalid) || c.Dials != 1 {
		t.Errorf("a request that is too large: %v, connected %d times", err, c.Dials)
	}
	stop()
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := c.Call(ctx, "hello"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a server: %v, want the deadline", err)
	}
}

// TestPlace: private data of a peer are not believed.
func TestPlace(t *testing.T) {
	for _, b := range [][]byte{nil, {1}, make([]byte, placeSize-1), make([]byte, 196)} {
		if p, err := decodePlace(b); err == nil {
			t.Errorf("%x is %+v", b, p)
		}
	}
	want := place{1 << 40, 4096, 17}
	if got, err := decodePlace(append(want.encode(), make([]byte, 180)...)); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// TestDevice runs the programs on a real device.
func TestDevice(t *testing.T) {
	d := testutil.Device(t)
	if d.Protocol() == "iw" {
		t.Skip("siw may not hear a client's first message: see docs/flows.md")
	}
	addr := address(t, d)
	dev, err := d.Open()
	testutil.Must(t, err)
	defer dev.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := NewMany(dev, 8)
	testutil.Must(t, err)
	l, err := rdmacm.Listen(ctx, addr+":0", m.Options())
	testutil.Must(t, err)
	serving, stop := context.WithCancel(ctx)
	served := make(chan error)
	go func() { served <- m.Serve(serving, l) }()
	for i := range 3 {
		c := Caller{Addr: l.Addr().String()}
		for range 20 {
			want := fmt.Sprint("client ", i)
			if got, err := c.Call(ctx, want); err != nil || got != want {
				t.Errorf("%s: %q, %v", want, got, err)
			}
		}
		testutil.Must(t, c.Close())
	}
	stop()
	testutil.Must(t, errors.Join(<-served, l.Close(), m.Close()))
}

func address(t *testing.T, d *uverbs.Device) string {
	t.Helper()
	for _, name := range d.NetDevs() {
		ifi, err := net.InterfaceByName(name)
		testutil.Must(t, err)
		addrs, err := ifi.Addrs()
		testutil.Must(t, err)
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				return p.Addr().String()
			}
		}
	}
	t.Fatalf("%v has no IPv4 address", d)
	return ""
}
