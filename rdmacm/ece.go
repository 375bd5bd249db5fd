package rdmacm

import (
	"github.com/pureverbs/rdma/abi"
)

// ECE are enhanced connection options, which vendors use to agree on what their devices can
// do beyond the standard. The zero value stands for none. Source: rdma_set_local_ece(3).
type ECE struct {
	VendorID uint32
	Options  uint32 // bits, with a meaning of the vendor's
}

func (e ECE) kernel() abi.RdmaUcmEce {
	return abi.RdmaUcmEce{VendorId: e.VendorID, AttrMod: e.Options}
}

// SetLocalECE sets the options that Connect asks the peer for, or that Accept agrees to: what
// is left of those of [ID.RemoteECE]. Source: rdma_set_local_ece(3).
func (id *ID) SetLocalECE(e ECE) error {
	return id.do(opOption, noAddr, func() error {
		id.ece = e
		return nil
	})
}

// LocalECE returns what SetLocalECE has set.
func (id *ID) LocalECE() ECE {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.ece
}

// RemoteECE returns the options of the peer: those that it asks for, after
// EventConnectRequest, or those that it agreed to, after EventConnectResponse or
// EventEstablished. Source: rdma_get_remote_ece(3).
func (id *ID) RemoteECE() ECE {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.peerECE
}

// RejectECE turns a connection request down because of its options; otherwise it is as
// [ID.Reject]. The client gets a [RejectedError] with reason RejectECE, and may try again
// without options. Source: rdma_reject_ece(3).
func (id *ID) RejectECE(private []byte) error { return id.turnDown(private, RejectECE) }
