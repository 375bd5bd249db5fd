package rdmacm_test

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
	"github.com/pureverbs/rdma/rdmacm"
)

// TestListenBothFamilies: on iWARP it takes two ids, and a kernel whose driver can do that.
func TestListenBothFamilies(t *testing.T) {
	siw := []fakekernel.Device{{Driver: abi.RDMA_DRIVER_SIW}}
	for kernel, works := range map[string]bool{"5.10": false, "6.1": true} {
		k := newKernel(t, fakekernel.Options{Devices: siw, Kernel: kernel})
		l, err := rdmacm.Listen(testContext(t), ":7174", options(k, nil))
		if works {
			testutil.Must(t, err)
			testutil.Must(t, l.Close())
			continue
		}
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "listen on 0.0.0.0") {
			t.Errorf("%s: got %v, want EADDRINUSE and what to do", kernel, err)
		}
		l, err = rdmacm.Listen(testContext(t), "0.0.0.0:7174", options(k, nil))
		testutil.Must(t, err)
		testutil.Must(t, l.Close())
	}
}

// TestDialBlocked: on iWARP the kernel connects within the call, and a host that swallows
// everything holds it for minutes. Dial ends with its context all the same, and what it made
// is closed when the kernel lets go.
func TestDialBlocked(t *testing.T) {
	for _, listens := range []bool{false, true} {
		called, release := make(chan struct{}), make(chan struct{})
		k := newKernel(t, fakekernel.Options{
			Devices: []fakekernel.Device{{Driver: abi.RDMA_DRIVER_SIW}},
			Log: func(c fakekernel.Call) {
				if c.Kind == fakekernel.CallCM && c.Cmd == abi.RDMA_USER_CM_CMD_CONNECT {
					close(called)
					<-release
				}
			},
		})
		if listens {
			mustListen(t, k, server, nil)
		}
		before := k.Counts().CMFiles
		ctx, cancel := context.WithCancelCause(testContext(t))
		impatient := errors.New("impatient")
		go func() {
			<-called
			cancel(impatient)
		}()
		if c, err := rdmacm.Dial(ctx, server, options(k, nil)); !errors.Is(err, impatient) {
			t.Errorf("got %v, %v, want the reason of the context's end", c, err)
		}
		if k.Counts().QPs != 1 {
			t.Errorf("left are %+v, want what the kernel still works on", k.Counts())
		}
		close(release)
		for deadline := testContext(t); k.Counts().CMFiles != before; time.Sleep(time.Millisecond) {
			testutil.Must(t, deadline.Err())
		}
	}
}
