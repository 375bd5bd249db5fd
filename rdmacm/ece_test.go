package rdmacm

import (
	"testing"

	"github.com/pureverbs/rdma/abi"
)

func (s *script) putECE(kid uint32, typ EventType, e ECE) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events <- &abi.RdmaUcmEventResp{Uid: s.uids[kid], Id: kid, Event: uint32(typ), Ece: e.kernel()}
}

func TestECE(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	ask, grant := ECE{VendorID: 0x15b3, Options: 0xf}, ECE{VendorID: 0x15b3, Options: 0x3}
	none := ConnParam{ResponderResources: None, InitiatorDepth: None}

	client := mustID(t, ch)
	if err := client.SetLocalECE(ask); err != nil || client.LocalECE() != ask {
		t.Errorf("got %+v and error %v, want %+v", client.LocalECE(), err, ask)
	}
	if err := client.Connect(none); err != nil {
		t.Fatal(err)
	}
	if got := as[abi.RdmaUcmConnect](s.sent(abi.RDMA_USER_CM_CMD_CONNECT)[0]).Ece; got != ask.kernel() {
		t.Errorf("connect carries %+v, want %+v", got, ask)
	}
	s.putECE(client.kid, EventConnectResponse, grant)
	if ev := next(t, ch); ev.ECE != grant || client.RemoteECE() != grant {
		t.Errorf("got %+v, %+v from the peer, want %+v", ev.ECE, client.RemoteECE(), grant)
	}

	listener := mustID(t, ch)
	for range 2 {
		kid := s.next
		s.next++
		s.uids[kid] = 0
		s.events <- &abi.RdmaUcmEventResp{Uid: listener.uid, Id: kid, Event: uint32(EventConnectRequest), Ece: ask.kernel()}
	}
	accepted, rejected := next(t, ch).ID, next(t, ch).ID
	defer accepted.Close()
	defer rejected.Close()
	if accepted.RemoteECE() != ask || accepted.LocalECE() != (ECE{}) {
		t.Errorf("got %+v of the client and %+v here, want %+v and none", accepted.RemoteECE(), accepted.LocalECE(), ask)
	}
	if err := accepted.SetLocalECE(grant); err != nil {
		t.Fatal(err)
	}
	if err := accepted.Accept(none); err != nil {
		t.Fatal(err)
	}
	if got := as[abi.RdmaUcmAccept](s.sent(abi.RDMA_USER_CM_CMD_ACCEPT)[0]).Ece; got != grant.kernel() {
		t.Errorf("accept carries %+v, want %+v", got, grant)
	}
	if err := rejected.RejectECE([]byte("no")); err != nil {
		t.Fatal(err)
	}
	in := as[abi.RdmaUcmReject](s.sent(abi.RDMA_USER_CM_CMD_REJECT)[0])
	if in.Reason != 35 || string(in.PrivateData[:in.PrivateDataLen]) != "no" {
		t.Errorf("got reason %d with %q, want 35 with no", in.Reason, in.PrivateData[:in.PrivateDataLen])
	}
	mustBe(t, "again", rejected.RejectECE(nil), ErrInvalid)
}
