package rdmacm

import (
	"fmt"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/uverbs"
)

// None stands for a real 0 in those fields of [ConnParam] where 0 stands for the default.
const None = 0xff

// DefaultMinRNRTimer is the code for 0.64 ms.
const DefaultMinRNRTimer = 12

// ConnParam says how a connection is to be. The zero value is good for most.
type ConnParam struct {
	// PrivateData goes to the peer along with the handshake. What the transport can carry
	// is little, see the package's documentation; more is an error.
	PrivateData []byte

	// ResponderResources is how many RDMA READs and atomics of the peer this side serves
	// at once, InitiatorDepth how many it may have in flight itself. 0 stands for what the
	// device can; accepting, neither exceeds what the peer offers.
	ResponderResources uint8
	InitiatorDepth     uint8

	// FlowControl says that the hardware can do end-to-end flow control. Not on iWARP.
	FlowControl bool

	// RetryCount is how often a send is repeated that the peer's device does not answer,
	// up to 7; RNRRetryCount how often one that found no receive posted, where 7 is for
	// ever. 0 stands for 7. Accepting, RetryCount has no effect: the client decides.
	RetryCount    uint8
	RNRRetryCount uint8

	// MinRNRTimer is the code of the time that a peer waits at least before it repeats a
	// send that found no receive posted here: see [uverbs.RNRTimer]. 0 stands for
	// DefaultMinRNRTimer. (Code 0, the kernel's own default, is 655 ms, which shows as
	// mysterious pauses; None asks for it.) Not on iWARP.
	MinRNRTimer uint8

	// QPNum and SRQ tell the peer about the queue pair of an id that has none made by
	// [ID.CreateQP]: its number, and if it receives from a shared receive queue.
	QPNum uint32
	SRQ   bool

	// QKey is what datagrams to the queue pair have to carry, on datagram port spaces with
	// addresses of InfiniBand (see [ID.BindIB]). 0 stands for DefaultQKey, which with IP
	// addresses it always is.
	QKey uint32
}

// DefaultQKey is the Q_Key of datagram queue pairs of PortSpaceUDP. On PortSpaceIPoIB it is
// that of the IP over InfiniBand groups.
const DefaultQKey = 0x01234567

// depths are the limits of RDMA READs and atomics at once.
type depths struct{ resources, initiator uint8 }

// protocolIWARP is the one whose connections are made by another connection manager.
const protocolIWARP = "iw"

// The transports' limits for private data: a message of the InfiniBand connection manager
// has so many bytes, of which a connection request spends 36 on IP addresses. On iWARP the
// length has to fit the kernel's interface, 255 bytes, of which siw spends 4: more arrives
// broken.
var (
	privateLimitIB       = map[string]int{opConnect: 92, opAccept: 196, opReject: 148}
	privateLimitDatagram = map[string]int{opConnect: 216, opAccept: 136, opReject: 136}
	privateLimitIWARP    = 251
)

const privateAddresses = 36

func (id *ID) privateLimit(op string) int {
	if dev, err := id.device(); err != nil || dev.Protocol() == protocolIWARP {
		return privateLimitIWARP
	}
	limits := privateLimitIB
	if id.ps.datagrams() {
		limits = privateLimitDatagram
	}
	if op == opConnect && !id.afIB() {
		return limits[op] - privateAddresses
	}
	return limits[op]
}

// checkPrivate refuses what does not fit, with the limit, where the kernel says EINVAL.
func (id *ID) checkPrivate(op string, private []byte) error {
	if limit := id.privateLimit(op); len(private) > limit {
		return invalidError(fmt.Sprintf("%d bytes of private data, the transport carries up to %d here", len(private), limit))
	}
	return nil
}

func (id *ID) device() (*uverbs.Device, error) {
	if id.qp != nil {
		return id.qp.PD().Context().Device(), nil
	}
	return id.ch.devs.find(id.dev)
}

// params checks the parameters, fills in the defaults of the depths, and the queue pair's
// properties.
func (id *ID) params(p *ConnParam) (depths, error) {
	if id.qp != nil {
		p.QPNum, p.SRQ = id.qp.Num(), p.SRQ || id.qp.SRQ() != nil
	}
	switch {
	case !id.ps.datagrams() && p.QKey != 0:
		return depths{}, invalidError("a Q_Key is for datagrams")
	case !id.ps.datagrams():
		return id.depths(p)
	case p.QKey != 0 && p.QKey != DefaultQKey && !id.afIB():
		return depths{}, invalidError("with IP addresses the kernel chooses the Q_Key")
	case id.state == stateRequested && p.QPNum == 0:
		return depths{}, invalidError("no queue pair whose number could be the answer")
	}
	return depths{}, nil
}

// depths fills in the defaults and checks the rest against the device.
func (id *ID) depths(p *ConnParam) (depths, error) {
	d := depths{value(p.ResponderResources, None), value(p.InitiatorDepth, None)}
	if id.qp == nil && p.ResponderResources != 0 && p.InitiatorDepth != 0 {
		return d, nil // the program made the queue pair and knows what it can
	}
	attr, err := id.limits()
	if err != nil {
		return d, err
	}
	if err := fit("ResponderResources", &d.resources, p.ResponderResources, attr.MaxQPRDAtom); err != nil {
		return d, err
	}
	return d, fit("InitiatorDepth", &d.initiator, p.InitiatorDepth, attr.MaxQPInitRDAtom)
}

func fit(field string, to *uint8, asked uint8, device uint32) error {
	limit := min(device, None-1)
	switch {
	case asked == 0:
		*to = uint8(limit)
	case uint32(*to) > limit:
		return invalidError(fmt.Sprintf("%s is %d, the device does %d", field, asked, limit))
	}
	return nil
}

// limits are those of the queue pair's device, whose context may be the program's own, else of
// the id's.
func (id *ID) limits() (uverbs.DeviceAttr, error) {
	if id.qp != nil {
		return id.qp.PD().Context().QueryDevice()
	}
	ctx, err := id.context()
	if err != nil {
		return uverbs.DeviceAttr{}, err
	}
	return ctx.QueryDevice()
}

// value gives a field its default, and None its meaning.
func value(v, byDefault uint8) uint8 {
	switch v {
	case 0:
		return byDefault
	case None:
		return 0
	}
	return v
}

// kernel builds the kernel's struct.
func (p *ConnParam) kernel(d depths) abi.RdmaUcmConnParam {
	k := abi.RdmaUcmConnParam{
		QpNum: p.QPNum, Qkey: p.QKey, PrivateDataLen: uint8(len(p.PrivateData)),
		ResponderResources: d.resources, InitiatorDepth: d.initiator,
		RetryCount: value(p.RetryCount, 7), RnrRetryCount: value(p.RNRRetryCount, 7), Valid: 1,
	}
	if p.FlowControl {
		k.FlowControl = 1
	}
	if p.SRQ {
		k.Srq = 1
	}
	copy(k.PrivateData[:], p.PrivateData)
	return k
}
