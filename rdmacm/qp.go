package rdmacm

import (
	"errors"
	"fmt"
	"net"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/uverbs"
)

// CreateQP makes a queue pair for the id, in state INIT: receives may be posted right away,
// and should be before Connect or Accept. On datagram port spaces it is a datagram queue pair,
// and in RTS: it may send and receive right away, with the Q_Key of the port space. The zero
// value for attr.Type stands for the type that fits. pd has to be on the id's device, see
// [ID.Context].
// The queue pair belongs to the id from now on: the library moves it through its states, and
// [ID.Close] destroys it.
//
// Errors: ErrInvalid if the id has a queue pair or no device yet, if pd is on another device, or
// if the type does not fit; ErrRequestGone if the client of a request gave up; those of
// [uverbs.PD.CreateQP]. Source: rdma_create_qp(3).
func (id *ID) CreateQP(pd *uverbs.PD, attr *uverbs.QPInitAttr) (*uverbs.QP, error) {
	var qp *uverbs.QP
	err := id.do(opQP, noAddr, func() (err error) {
		qp, err = id.createQP(pd, attr)
		return err
	})
	return qp, err
}

func (id *ID) createQP(pd *uverbs.PD, attr *uverbs.QPInitAttr) (*uverbs.QP, error) {
	switch {
	case id.qp != nil:
		return nil, invalidError("the id has a queue pair already")
	case id.dev.port == 0:
		return nil, invalidError("the id has no device yet")
	}
	if dev := pd.Context().Device(); !id.dev.matches(dev) {
		return nil, invalidError("the protection domain is on " + dev.Name() + ", the id on another device")
	}
	a, want := *attr, id.ps.qpType()
	if a.Type == 0 {
		a.Type = want
	}
	if (a.Type == uverbs.QPTypeUD) != (want == uverbs.QPTypeUD) {
		return nil, invalidError(fmt.Sprintf("a queue pair of type %v does not fit port space %v", a.Type, id.ps))
	}
	qp, err := pd.CreateQP(&a)
	if err != nil {
		return nil, err
	}
	id.qp = qp
	if err := id.start(); err != nil {
		id.qp = nil
		if id.state == stateRequested {
			err = gone(err)
		}
		return nil, joined(err, qp.Close())
	}
	return qp, nil
}

// start moves a new queue pair to the first state that it is of use in.
func (id *ID) start() error {
	if err := id.modify(uverbs.StateInit, nil); err != nil {
		return err
	}
	if !id.ps.datagrams() {
		return nil
	}
	if err := id.qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.QPAttrState); err != nil {
		return err
	}
	return id.qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTS}, uverbs.QPAttrState|uverbs.QPAttrSQPSN)
}

// QPAttr returns the attributes, and which of them count, that bring a queue pair to a
// state (INIT, RTR or RTS), for programs that make and move the queue pair themselves. They
// change as the connection moves on: access flags are 0 before Connect, so ask anew each
// time. On iWARP there are those for INIT only: the kernel moves the queue pair, and after
// EventEstablished the program modifies it to RTS, with nothing but the state.
// Source: rdma_init_qp_attr(3).
func (id *ID) QPAttr(to uverbs.QPState) (uverbs.QPAttr, uverbs.QPAttrMask, error) {
	var (
		attr uverbs.QPAttr
		mask uverbs.QPAttrMask
	)
	err := id.do("get queue pair attributes", noAddr, func() (err error) {
		attr, mask, err = id.qpAttr(to)
		return err
	})
	return attr, mask, err
}

func (id *ID) qpAttr(to uverbs.QPState) (uverbs.QPAttr, uverbs.QPAttrMask, error) {
	in := abi.RdmaUcmInitQpAttr{Id: id.kid, QpState: uint32(to)}
	var out abi.IbUverbsQpAttr
	if err := id.ch.ask(abi.RDMA_USER_CM_CMD_INIT_QP_ATTR, uapi.Bytes(&in), 0, uapi.Bytes(&out)); err != nil {
		return uverbs.QPAttr{}, 0, err
	}
	attr, mask := uverbs.QPAttrFromKernel(&out)
	if mask&uverbs.QPAttrMinRNRTimer != 0 && id.rnr != None {
		// The connection manager leaves 0, which is the longest delay of all.
		attr.MinRNRTimer = id.rnr
		if id.rnr == 0 {
			attr.MinRNRTimer = DefaultMinRNRTimer
		}
	}
	return attr, mask, nil
}

// modify moves the queue pair as the connection manager says. d replaces the limits that the
// kernel knows, if it is given.
func (id *ID) modify(to uverbs.QPState, d *depths) error {
	attr, mask, err := id.qpAttr(to)
	if err != nil {
		return err
	}
	if d != nil {
		attr.MaxDestRDAtomic, attr.MaxRDAtomic = d.resources, d.initiator
	}
	return id.qp.Modify(&attr, mask)
}

// ready brings the queue pair from INIT to RTS, through INIT once more: before the
// handshake the kernel did not know the access that the peer is to have. d replaces the
// limits that the kernel knows, for a side that has not sent its own yet.
func (id *ID) ready(d *depths) error {
	if err := id.modify(uverbs.StateInit, nil); err != nil {
		return err
	}
	if id.iwarp() {
		return nil // the kernel does the rest itself, by the queue pair's number
	}
	if err := id.modify(uverbs.StateRTR, d); err != nil {
		return err
	}
	return id.modify(uverbs.StateRTS, d)
}

// qpError moves the queue pair to the state where everything posted is flushed, and so wakes
// those who wait for its completions. A queue pair that the program has closed is none.
func (id *ID) qpError() error {
	if id.qp == nil {
		return nil
	}
	to := uverbs.StateError
	if id.iwarp() {
		// Here the kernel moved the queue pair. The orderly end of an iWARP connection
		// goes through SQD.
		if now, err := id.qp.Query(uverbs.QPAttrState); err == nil && now.State == uverbs.StateRTS {
			to = uverbs.StateSQD
		}
	}
	err := id.qp.Modify(&uverbs.QPAttr{State: to}, uverbs.QPAttrState)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (id *ID) iwarp() bool {
	return id.qp.PD().Context().Device().Protocol() == protocolIWARP
}
