package rdmacm_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// injector puts events into the kernel while connections are made, used and closed: at each
// call of rdma_cm the script says if, what, and for which of the ids that there are.
type injector struct {
	k      *fakekernel.Kernel
	script []byte
	on     atomic.Bool
	mu     sync.Mutex
}

func (i *injector) see(c fakekernel.Call) {
	if c.Kind != fakekernel.CallCM || c.Cmd == abi.RDMA_USER_CM_CMD_GET_EVENT || !i.on.Load() {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.script) < 4 {
		return
	}
	which, typ, status, private := i.script[0], i.script[1], int8(i.script[2]), i.script[3]
	i.script = i.script[4:]
	ids := i.k.CM().IDs()
	if which >= 0x80 || len(ids) == 0 {
		return
	}
	id := ids[int(which)%len(ids)]
	switch {
	case typ&15 == byte(rdmacm.EventConnectRequest): // would need an id that the kernel has not got
	case typ < 0xf0:
		i.k.CM().Inject(id.ID, uint32(typ&15), int32(status), make([]byte, private))
	default: // of an id that there is not, and of a kind that there is not
		i.k.CM().InjectRaw(id.ID, abi.RdmaUcmEventResp{Uid: uint64(status), Id: uint32(private), Event: uint32(typ)})
	}
}

// FuzzConnections makes connections while events come in that do not belong there. Each call
// returns, what Dial returns is connected, and when all is closed nothing is left.
func FuzzConnections(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 9, 0, 0, 1, 9, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0})
	for i := range uint64(12) {
		r := rand.New(rand.NewPCG(i, 2))
		script := make([]byte, 160)
		for j := range script {
			script[j] = byte(r.Uint32())
		}
		f.Add(script)
	}
	for _, typ := range []rdmacm.EventType{
		rdmacm.EventAddrResolved, rdmacm.EventRouteResolved, rdmacm.EventEstablished, rdmacm.EventDisconnected,
		rdmacm.EventUnreachable, rdmacm.EventDeviceRemoval, rdmacm.EventConnectResponse, rdmacm.EventMulticastJoin,
	} {
		f.Add(slices.Repeat([]byte{0, byte(typ), 0, 0, 1, byte(typ), 0x90, 56}, 12))
		f.Add(slices.Repeat([]byte{1, byte(typ), 0, 0}, 12))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		dog := time.AfterFunc(20*time.Second, func() { panic("the run does not end") })
		defer dog.Stop()
		in := &injector{script: script}
		in.k = newKernel(t, fakekernel.Options{Log: in.see, TimeWait: time.Millisecond, CMTimeout: 5 * time.Millisecond})
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		l, err := rdmacm.Listen(ctx, server, options(in.k, nil))
		if err != nil {
			t.Fatal(err)
		}
		in.on.Store(true)
		served := make(chan struct{})
		go func() {
			defer close(served)
			for range 8 { // also if the listener was told that its device is gone
				if c, err := l.Accept(ctx); err == nil {
					closed(t, c)
				}
			}
		}()
		for range 2 {
			c, err := rdmacm.Dial(ctx, server, options(in.k, nil))
			if (c == nil) != (err != nil) {
				t.Errorf("got connection %v and error %v", c, err)
			}
			if err == nil {
				connected(t, c)
				closed(t, c)
			}
		}
		in.on.Store(false)
		cancel()
		if err := l.Close(); err != nil {
			t.Errorf("close listener: %v", err)
		}
		<-served
	})
}

// connected: a queue pair that was dialled is ready to send, or the connection has ended
// since, which another goroutine notes.
func connected(t *testing.T, c *rdmacm.Conn) {
	t.Helper()
	a, err := c.QP().Query(uverbs.QPAttrState)
	if err != nil || a.State < uverbs.StateRTS {
		t.Errorf("a connection was returned in state %v, %v", a.State, err)
	}
	if a.State == uverbs.StateError {
		select {
		case <-c.Done():
		case <-time.After(watchdog / 2):
			t.Error("the queue pair is in error, and the connection has not ended")
		}
	}
}

func closed(t *testing.T, c *rdmacm.Conn) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	select {
	case <-c.Done():
	default:
		t.Error("a closed connection is not done")
	}
}
