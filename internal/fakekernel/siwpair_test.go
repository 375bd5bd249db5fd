//go:build linux

package fakekernel

import (
	"testing"

	"github.com/pureverbs/rdma/abi"
)

// siwPair is two queue pairs of two contexts that the connection manager connected: a is
// the active side. Both ids are fetched up to ESTABLISHED.
type siwPair struct {
	t    testing.TB
	k    *Kernel
	cm   channel
	a, b *siwRawQP
	ids  [2]uint32
}

const activeUID, passiveUID, listenUID = 1, 2, 3

var siwAddr = ap("10.9.0.1:7174")

// depths are as many READs as a connection has in flight.
var depths = abi.RdmaUcmConnParam{InitiatorDepth: 4, ResponderResources: 4}

func (p *siwPair) connect() {
	p.t.Helper()
	p.connectWith(depths)
}

func (p *siwPair) connectWith(param abi.RdmaUcmConnParam) {
	p.t.Helper()
	p.ids[0] = p.cm.dial(activeUID, siwAddr)
	param.QpNum = p.a.num
	must(p.t, p.cm.connect(p.ids[0], param, ""))
	p.ids[1] = p.cm.next(EventConnectRequest, listenUID).Id
	param.QpNum = p.b.num
	must(p.t, p.cm.accept(p.ids[1], passiveUID, param, ""))
	p.cm.next(EventEstablished, passiveUID)
	p.cm.next(EventEstablished, activeUID)
}

func siwConnected(t testing.TB, opts Options) *siwPair {
	t.Helper()
	k := startSiw(t, opts)
	p := &siwPair{t: t, k: k, cm: openCM(t, k), a: openSiw(t, k).qp(), b: openSiw(t, k).qp()}
	p.cm.listener(listenUID, siwAddr)
	p.connect()
	return p
}

// states checks where the queue pairs are.
func (p *siwPair) states(what string, a, b uint8) {
	p.t.Helper()
	if x, y := p.a.query().QpState, p.b.query().QpState; x != a || y != b {
		p.t.Errorf("%s: states %d and %d, want %d and %d", what, x, y, a, b)
	}
}

// events fetches the events that are there, by uid and type.
func (p *siwPair) events(what string, want ...[2]uint64) {
	p.t.Helper()
	var got [][2]uint64
	for {
		var e abi.RdmaUcmEventResp
		err := p.cm.call(abi.RDMA_USER_CM_CMD_GET_EVENT, bytesOf(&abi.RdmaUcmGetEvent{}), 0, bytesOf(&e))
		if err != nil {
			break
		}
		got = append(got, [2]uint64{e.Uid, uint64(e.Event)})
	}
	same(p.t, what+": events", got, want)
}

// The end of a connection, as the one who begins it sees it first.
var (
	bothGone     = [][2]uint64{{activeUID, EventDisconnected}, {passiveUID, EventDisconnected}}
	passiveFirst = [][2]uint64{bothGone[1], bothGone[0]}
)
