//go:build linux

package tests

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// pair are the two ends of a connection that is being made. Nothing of queue pairs is
// needed for that on RoCE.
type pair struct {
	a, b  cm // active, passive
	from  uint32
	l, to uint32
}

// pair brings a request to a listener.
func (r *rig) pair(port uint16) pair {
	r.t.Helper()
	p := pair{a: r.cm(), b: r.cm()}
	p.l = p.b.listener(100, abi.RDMA_PS_TCP, port)
	p.from = p.a.dial(1, abi.RDMA_PS_TCP, port+1, port)
	return p
}

// requested has the request arrive.
func (r *rig) requested(port uint16) pair {
	r.t.Helper()
	p := r.pair(port)
	p.a.must(p.a.connect(p.from, param(r.number(), 3)))
	p.to = p.b.expect(evRequest).Id
	return p
}

// replied has it accepted.
func (r *rig) replied(port uint16) pair {
	r.t.Helper()
	p := r.requested(port)
	p.b.must(p.b.accept(p.to, 2, param(r.number()+1, 5)))
	p.a.expect(evResponse)
	return p
}

func (r *rig) connected(port uint16) pair {
	r.t.Helper()
	p := r.replied(port)
	p.a.must(p.a.establish(p.from))
	p.b.expect(evEstablished)
	return p
}

// cmConnectionCases follow connections of RoCE.
var cmConnectionCases = []kernelCase{
	{"request" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.pair(7120)
		p.a.must(p.a.connect(p.from, param(r.number(), 3)))
		e := p.b.next()
		f := p.b.of(e)
		f["is new"] = e.Id != p.l
		f["addresses"] = p.b.addr(e.Id)
		return f, nil
	}},
	{"attributes at the active side before the answer" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.requested(7120)
		return p.a.attrs(p.from)
	}},
	{"attributes at the passive side" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.requested(7120)
		return p.b.attrs(p.to)
	}},
	{"path and route of the passive side" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.requested(7120)
		f, err := p.b.paths(p.to, 1)
		f["route"], _ = p.b.routeOf(p.to)
		return f, err
	}},
	{"response" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.requested(7120)
		p.b.must(p.b.accept(p.to, 2, param(r.number()+1, 5)))
		return p.a.of(p.a.next()), nil
	}},
	{"attributes at the active side" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.replied(7120)
		return p.a.attrs(p.from)
	}},
	{"attributes without reads" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.pair(7120)
		q := param(r.number(), 0)
		q.ResponderResources, q.InitiatorDepth, q.RetryCount, q.RnrRetryCount = 0, 0, 99, 99
		p.a.must(p.a.connect(p.from, q))
		e := p.b.expect(evRequest)
		f, err := p.b.attrs(e.Id)
		f["request"] = p.b.of(e)
		return f, err
	}},
	{"attributes with an own timeout" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.requested(7120)
		p.b.must(p.b.option(p.to, abi.RDMA_OPTION_ID, abi.RDMA_OPTION_ID_ACK_TIMEOUT, []byte{9}))
		return p.b.attrs(p.to)
	}},
	{"established" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.replied(7120)
		p.a.must(p.a.establish(p.from))
		return p.b.of(p.b.next()), nil
	}},
	{"accept after the connection" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.connected(7120)
		return nil, p.b.accept(p.to, 2, param(r.number()+1, 0))
	}},
	{"accept with 197 bytes rejects" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.requested(7120)
		err := p.b.accept(p.to, 2, param(r.number()+1, 197))
		return p.a.of(p.a.next()), err
	}},
	{"accept with 196 bytes" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.requested(7120)
		err := p.b.accept(p.to, 2, param(r.number()+1, 196))
		return p.a.of(p.a.next()), err
	}},
	{"connect with 57 bytes" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.pair(7120)
		return nil, p.a.connect(p.from, param(r.number(), 57))
	}},
	{"connect with 255 bytes" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.pair(7120)
		return nil, p.a.connect(p.from, param(r.number(), 255))
	}},
	{"connect after a failure" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.pair(7120)
		_ = p.a.connect(p.from, param(r.number(), 57))
		p.a.must(p.a.connect(p.from, param(r.number(), 56)))
		return p.b.of(p.b.next()), nil
	}},
	{"connect twice" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.requested(7120)
		return nil, p.a.connect(p.from, param(r.number(), 0))
	}},
	{"nobody listens" + rxeOnly, nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.dial(1, abi.RDMA_PS_TCP, 7121, 7120)
		c.must(c.connect(id, param(r.number(), 0)))
		f := c.of(c.next())
		f["again"] = fmt.Sprint(c.connect(id, param(r.number(), 0)))
		f["disconnect"] = fmt.Sprint(c.disconnect(id))
		f["reject"] = fmt.Sprint(c.reject(id, 0, 0))
		f["attributes"], _ = c.attrs(id)
		return f, nil
	}},
	{"rejected" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.requested(7120)
		p.b.must(p.b.reject(p.to, 0, 148))
		return p.a.of(p.a.next()), nil
	}},
	{"rejected for ECE" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.requested(7120)
		p.b.must(p.b.reject(p.to, 35, 2))
		return p.a.of(p.a.next()), nil
	}},
	{"reject with 149 bytes" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.requested(7120)
		return nil, p.b.reject(p.to, 0, 149)
	}},
	{"reject twice" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.requested(7120)
		p.b.must(p.b.reject(p.to, 0, 0))
		return nil, p.b.reject(p.to, 0, 0)
	}},
	{"the active side rejects" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.replied(7120)
		p.a.must(p.a.reject(p.from, 0, 1))
		return p.b.of(p.b.next()), nil
	}},
	{"reject a connection" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.connected(7120)
		return nil, p.b.reject(p.to, 0, 0)
	}},
	{"destroyed before the answer" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.requested(7120)
		_, err := p.b.destroy(p.to)
		p.b.must(err)
		return p.a.of(p.a.next()), nil
	}},
	{"the listener is destroyed with a request" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.pair(7120)
		p.a.must(p.a.connect(p.from, param(r.number(), 0)))
		p.b.wait()
		n, err := p.b.destroy(p.l)
		p.b.must(err)
		f := p.a.of(p.a.next())
		f["reported"] = n
		return f, nil
	}},
	{"the client goes before the answer" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.requested(7120)
		_, err := p.a.destroy(p.from)
		p.a.must(err)
		for err = nil; err == nil; { // it takes a moment to arrive
			_, err = p.b.qpAttr(p.to, stateInit)
		}
		return nil, p.b.accept(p.to, 2, param(r.number()+1, 0))
	}},
	{"the client goes after the answer" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.replied(7120)
		_, err := p.a.destroy(p.from)
		p.a.must(err)
		return p.b.of(p.b.next()), nil
	}},
	{"disconnect" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.connected(7120)
		p.a.must(p.a.disconnect(p.from))
		f := p.b.of(p.b.next())
		p.b.must(p.b.disconnect(p.to))
		f["active"] = p.a.of(p.a.next())
		f["again"] = fmt.Sprint(p.a.disconnect(p.from), p.b.disconnect(p.to))
		return f, nil
	}},
	{"disconnect before the answer" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.requested(7120)
		return fields{"passive": fmt.Sprint(p.b.disconnect(p.to))}, p.a.disconnect(p.from)
	}},
	{"disconnect a listener", onlySiw(syscall.EINVAL), func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.disconnect(c.listener(1, abi.RDMA_PS_TCP, 7120))
	}},
	{"disconnect a route", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.disconnect(c.dial(1, abi.RDMA_PS_TCP, 7121, 7120))
	}},
	{"reject a route", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.reject(c.dial(1, abi.RDMA_PS_TCP, 7121, 7120), 0, 0)
	}},
	{"accept a route", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.accept(c.dial(1, abi.RDMA_PS_TCP, 7121, 7120), 1, param(1, 0))
	}},
	{"a listener without an identity" + rxeOnly, nil, func(r *rig) (fields, error) {
		a, b := r.cm(), r.cm()
		b.listener(0, abi.RDMA_PS_TCP, 7120)
		a.must(a.connect(a.dial(1, abi.RDMA_PS_TCP, 7121, 7120), param(r.number(), 0)))
		return b.of(b.next()), nil
	}},
	{"no events without an identity", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(0)
		c.must(c.resolve(id, r.at(7121), r.at(7120)))
		for c.addr(id)["dst"] == "none" || c.route(id) != nil { // until it is resolved
		}
		_, err := c.poll()
		return fields{"event": err != nil}, nil
	}},
	{"events are counted" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.connected(7120)
		a, err := p.a.destroy(p.from)
		p.a.must(err)
		p.b.expect(evDisconnected)
		b, err := p.b.destroy(p.to)
		p.b.must(err)
		l, err := p.b.destroy(p.l)
		return fields{"active": a, "passive": b, "listener": l}, err
	}},
}

// wait waits until there is an event, and leaves it.
func (c cm) wait() {
	c.r.t.Helper()
	bad := append(header(abi.RDMA_USER_CM_CMD_GET_EVENT, 8, 336, 0), uapi.Bytes(&abi.RdmaUcmGetEvent{Response: 1})...)
	for errors.Is(c.write(bad), syscall.EAGAIN) {
	}
}

// cmStateCases are hints about a connection in each of its states. That the path of a
// connection was migrated, which has no other path, is not among them: 5.10 hangs when the
// connection ends, for good.
var cmStateCases = []kernelCase{
	{"communication established, on a route", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.notify(c.dial(1, abi.RDMA_PS_TCP, 7131, 7130), 4)
	}},
	{"communication established, on a new id", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.notify(c.tcp(1), 4)
	}},
	{"communication established, when requested" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.requested(7130)
		return nil, p.b.notify(p.to, 4)
	}},
	{"communication established, when replied" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.replied(7130)
		p.b.must(p.b.notify(p.to, 4))
		return p.b.of(p.b.next()), nil
	}},
	{"communication established, when connected" + rxeOnly, always(syscall.EISCONN), func(r *rig) (fields, error) {
		p := r.connected(7130)
		return nil, p.b.notify(p.to, 4)
	}},
	{"path migrated, when requested" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.requested(7130)
		return nil, p.b.notify(p.to, 6)
	}},
	{"path not migrated, when connected" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.connected(7130)
		return nil, p.b.notify(p.to, 7)
	}},
	{"another event" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.connected(7130)
		return nil, p.b.notify(p.to, 1)
	}},
	{"on a listener", rules{{errno: syscall.EINVAL}, {driver: "siw"}}, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.notify(c.listener(1, abi.RDMA_PS_TCP, 7130), 4)
	}},
}
