//go:build linux

package fakekernel

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// TestRaiseCM raises every event in every state.
func TestRaiseCM(t *testing.T) {
	for typ := uint32(0); typ <= EventInternal; typ++ {
		t.Run(fmt.Sprint("event ", typ), func(t *testing.T) {
			k := start(t, Options{})
			c := openCM(t, k)
			seen := make(map[string]bool)
			for uid, make := range idStates(t, c) {
				id := make(uint64(uid + 1))
				seen[stateAt(k, id)] = true
				n := k.RaiseCM(func(x CMID) bool { return x.ID == id }, typ, -5, []byte("data"))
				e := c.next(typ, uint64(uid+1))
				p := e.ParamConn()
				if n != 1 || int32(e.Status) != -5 || p.PrivateDataLen != 4 || string(p.PrivateData[:4]) != "data" {
					t.Errorf("raised %d times, status %d, data %q", n, int32(e.Status), p.PrivateData[:5])
				}
				switch {
				case typ == EventConnectRequest && (e.Id == id || c.reject(e.Id, 0, "") != nil):
					t.Error("a request has an id that can be rejected")
				case typ == EventDeviceRemoval && c.notify(id) != unix.ENXIO:
					t.Error("an id outlives its device")
				case typ != EventConnectRequest && e.Id != id:
					t.Errorf("id %d, want %d", e.Id, id)
				}
				must(t, errOf(c.destroy(id)))
			}
			if len(seen) != 6 {
				t.Errorf("states %v", seen)
			}
		})
	}
}

// idStates bring ids into states.
func idStates(t *testing.T, c channel) []func(uid uint64) uint32 {
	bound := func(uid uint64) uint32 {
		id := c.id(uid)
		must(t, c.bind(id, ap("10.9.0.1:0"), 0))
		return id
	}
	return []func(uint64) uint32{
		c.id, bound,
		func(uid uint64) uint32 { id := bound(uid); must(t, c.listen(id, 8)); return id },
		func(uid uint64) uint32 {
			id := c.id(uid)
			must(t, c.resolve(id, ap("10.9.0.1:1"), 0))
			c.next(EventAddrResolved, uid)
			return id
		},
		func(uid uint64) uint32 { return c.dial(uid, ap("10.9.0.1:1")) },
		func(uid uint64) uint32 {
			id := c.dial(uid, ap("10.9.0.1:1"))
			must(t, c.connect(id, abi.RdmaUcmConnParam{}, ""))
			c.next(EventRejected, uid)
			return id
		},
	}
}

func stateAt(k *Kernel, id uint32) string {
	for _, x := range k.CM().IDs() {
		if x.ID == id {
			return x.State
		}
	}
	return "gone"
}

// TestRaiseMulticast: events of groups name the group, and ids that joined none get them too.
func TestRaiseMulticast(t *testing.T) {
	k := start(t, Options{})
	c := openCM(t, k)
	id := c.udp(1)
	must(t, c.bind(id, ap("10.9.0.1:0"), 0))
	g, err := c.join(id, "239.1.2.3:0", 0)
	must(t, err)
	c.next(EventMulticastJoin, uint64(id)+1000)
	all := func(CMID) bool { return true }
	if n := k.RaiseCM(all, EventMulticastError, -int32(unix.ENOMEM), nil); n != 1 {
		t.Errorf("raised %d times", n)
	}
	if e := c.next(EventMulticastError, uint64(id)+1000); e.Id != g || int32(e.Status) != -int32(unix.ENOMEM) {
		t.Errorf("event %+v", e)
	}
	must(t, errOf(c.leave(g)))
	k.RaiseCM(all, EventMulticastError, 0, nil)
	c.next(EventMulticastError, 1)
	c.id(0)
	if n := k.RaiseCM(all, EventAddrChange, 0, nil); n != 1 {
		t.Errorf("raised %d times, also where nobody would hear of it", n)
	}
	c.next(EventAddrChange, 1)
}

// TestLoseCM loses each message of a connection in turn: the one who waits for it gives up,
// and nobody hears of what has not arrived.
func TestLoseCM(t *testing.T) {
	timeout := -int32(unix.ETIMEDOUT)
	for name, tt := range map[string]struct {
		lose            CMMessage
		active, passive uint32 // the last event of each; 99 for none
	}{
		"request":    {CMRequest, EventUnreachable, 99},
		"reply":      {CMReply, EventUnreachable, EventUnreachable},
		"ready":      {CMReadyToUse, EventConnectResponse, EventUnreachable},
		"disconnect": {CMDisconnectRequest, EventDisconnected, EventEstablished},
		"answer":     {CMDisconnectReply, EventDisconnected, EventDisconnected},
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t, Options{CMTimeout: time.Millisecond, TimeWait: time.Hour})
			server, client := openCM(t, k), openCM(t, k)
			server.listener(100, ap("10.9.0.1:7174"))
			mend := k.LoseCM(func(m CMMessage, from CMID) bool { return m == tt.lose })
			defer mend()
			id := client.dial(1, ap("10.9.0.1:7174"))
			must(t, client.connect(id, abi.RdmaUcmConnParam{}, ""))
			var last [2]abi.RdmaUcmEventResp
			for deadline := time.Now().Add(2 * time.Second); ; {
				if step(t, server, client, id, &last) && last[0].Event == tt.active && (tt.passive == 99 || last[1].Event == tt.passive) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("last events %d, %d; want %d, %d", last[0].Event, last[1].Event, tt.active, tt.passive)
				}
			}
			for i, e := range last {
				late := e.Event == EventUnreachable || e.Event == EventDisconnected && i == 0
				if late != (int32(e.Status) == timeout) {
					t.Errorf("event %d with status %d", e.Event, int32(e.Status))
				}
			}
		})
	}
}

// step does at both ends what an event asks for, if there is one; true if there is none.
func step(t *testing.T, server, client channel, id uint32, last *[2]abi.RdmaUcmEventResp) (quiet bool) {
	t.Helper()
	quiet = true
	for i, c := range []channel{client, server} {
		var e abi.RdmaUcmEventResp
		if c.call(abi.RDMA_USER_CM_CMD_GET_EVENT, bytesOf(&abi.RdmaUcmGetEvent{}), 0, bytesOf(&e)) != nil {
			continue
		}
		quiet, last[i] = false, e
		switch e.Event {
		case EventConnectRequest:
			must(t, server.accept(e.Id, 2, abi.RdmaUcmConnParam{QpNum: 5}, ""))
		case EventConnectResponse:
			must(t, client.establish(id))
		case EventEstablished:
			must(t, client.disconnect(id))
		case EventDisconnected:
			if i == 1 {
				must(t, server.disconnect(e.Id))
			}
		}
	}
	return quiet
}

// TestDeadClient: the file of a client is closed at each point of the way, once with all that
// the kernel says on its behalf, once without, as when the host dies. The server must be able
// to get rid of what is left.
func TestDeadClient(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for steps := range 8 {
			k := start(t, Options{CMTimeout: time.Millisecond})
			server, client := openCM(t, k), openCM(t, k)
			l := server.listener(100, ap("10.9.0.1:7174"))
			id := client.dial(1, ap("10.9.0.1:7174"))
			must(t, client.connect(id, abi.RdmaUcmConnParam{}, ""))
			var last [2]abi.RdmaUcmEventResp
			for range steps {
				step(t, server, client, id, &last)
			}
			if silent {
				k.LoseCM(func(_ CMMessage, from CMID) bool { return from.ID == id })
			}
			must(t, client.f.Close())
			for _, x := range k.CM().IDs() {
				if x.ID != l {
					_, _ = server.destroy(x.ID)
				}
			}
			must(t, errOf(server.destroy(l)))
			server.quiet()
			if n := k.Counts().CMIDs; n != 0 {
				t.Errorf("%d ids are left", n)
			}
		}
	}
}
