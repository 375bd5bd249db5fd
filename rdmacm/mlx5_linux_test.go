package rdmacm_test

import (
	"strings"
	"testing"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// TestMLX5Echo: between two mlx5 devices a connection is made, carries messages, and ends as
// between software devices; what is posted then is flushed by the device itself.
func TestMLX5Echo(t *testing.T) {
	for name, tt := range map[string]struct {
		kernel string
		device fakekernel.MLX5
	}{
		"5.10":        {"5.10", fakekernel.MLX5{}},
		"6.1":         {"6.1", fakekernel.MLX5{}},
		"7.2":         {"7.2", fakekernel.MLX5{}},
		"static UARs": {"5.10", fakekernel.MLX5{StaticUARs: true, CQEVersion0: true}},
	} {
		t.Run(name, func(t *testing.T) {
			d := fakekernel.Device{Driver: abi.RDMA_DRIVER_MLX5, MLX5: tt.device}
			k := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{d, d}, Kernel: tt.kernel})
			l := mustListen(t, k, server, nil)
			s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
			if got := c.QP().PD().Context().Device().Driver(); got != "mlx5" {
				t.Fatalf("the driver is %s", got)
			}
			echo(t, s, c)
			testutil.Must(t, c.Disconnect())
			for _, e := range []*end{s, c} {
				mustBe(t, "the end", ended(t, e), rdmacm.ErrDisconnected)
			}
			flushed(t, s)
		})
	}
}

// TestMLX5Datagrams: a question and its answer, over the way that the question came.
func TestMLX5Datagrams(t *testing.T) {
	d := fakekernel.Device{Driver: abi.RDMA_DRIVER_MLX5}
	k := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{d, d}})
	ctx := testContext(t)
	l, server := mustListenDatagram(t, k, "10.9.0.1:0", rdmacm.Options{})
	asker, client := mustResolveDatagram(t, k, l.Addr().String(), rdmacm.Options{})
	testutil.Must(t, client.tell(ctx, asker.Dest(), "question"))
	got, back, qpn, err := server.told(ctx)
	if err != nil || got != "question" || qpn != asker.QP().Num() {
		t.Fatalf("got %q of queue pair %d and error %v, want the question of %d", got, qpn, err, asker.QP().Num())
	}
	ah, err := server.PD().CreateAH(&back)
	testutil.Must(t, err)
	testutil.Must(t, server.tell(ctx, ah.Dest(qpn, rdmacm.DefaultQKey), "answer"))
	if got, _, _, err := client.told(ctx); err != nil || got != "answer" {
		t.Errorf("got %q and error %v, want the answer", got, err)
	}
	testutil.Must(t, ah.Close())
}

// echo sends messages to and fro, as many as there are receives.
func echo(t *testing.T, s, c *end) {
	t.Helper()
	ctx := testContext(t)
	for i := range slots {
		want := strings.Repeat("x", i)
		testutil.Must(t, c.say(ctx, want))
		got, err := s.hear(ctx)
		testutil.Must(t, err)
		testutil.Must(t, s.say(ctx, got))
		if got, err = c.hear(ctx); err != nil || got != want {
			t.Fatalf("round %d: got %q and error %v, want %q", i, got, err, want)
		}
	}
}

// flushed posts to a connection that has ended, and waits for the answer.
func flushed(t *testing.T, e *end) {
	t.Helper()
	var wc [1]uverbs.WC
	_, err := e.QP().PostRecv([]uverbs.RecvWR{{ID: 77}})
	testutil.Must(t, err)
	_, err = e.RecvCQ().Wait(testContext(t), wc[:])
	if err != nil || wc[0].ID != 77 || wc[0].Status != uverbs.WCFlushError {
		t.Errorf("got %+v and error %v, want a flush", wc[0], err)
	}
}
