package rdmacm

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/pureverbs/rdma/uverbs"
)

// Conn is an established reliable connection: a queue pair with what it needs. Data moves
// through the queue pair; Conn has no methods for it. It is safe for concurrent use.
//
// It is also what a [Datagram], a [DatagramListener] and a [Group] are made of. Those have no
// peer that could end them: Done is closed by Close, or when the device is removed.
type Conn struct {
	ep      *endpoint
	qp      *uverbs.QP
	pd      *uverbs.PD
	sendCQ  *uverbs.CQ
	recvCQ  *uverbs.CQ
	private []byte
	calling chan struct{} // closed when the kernel has returned from connecting; nil where it has

	mu       sync.Mutex
	closing  bool // Close was called
	undo     closers
	cleanups closers // of the program; a step of undo
}

// newConn makes the objects of a connection on the device of the endpoint's id. On failure
// all is closed, the endpoint too.
func newConn(ep *endpoint, o *Options) (*Conn, error) {
	c := &Conn{ep: ep, pd: o.PD, sendCQ: o.SendCQ, recvCQ: o.RecvCQ}
	c.undo.add(func() error { return ep.hub.close(ep) })
	err := c.build(o)
	if err == nil && o.Prepare != nil {
		err = o.Prepare(c)
	}
	if err != nil {
		return nil, c.giveUp(err)
	}
	return c, nil
}

// giveUp closes a connection that never was, and returns why. Memory regions that Prepare
// made on its protection domain without [Conn.AllocMR] are for the program to close, which
// it can hardly have done yet.
func (c *Conn) giveUp(why error) error {
	if calling := c.calling; calling != nil {
		c.calling = nil
		go func() {
			<-calling
			c.giveUp(why)
		}()
		return why
	}
	err := c.Close()
	if !errors.Is(err, ErrBusy) {
		return joined(why, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ep.hub.leave(c.undo)
	return why
}

func (c *Conn) build(o *Options) error {
	if c.pd == nil {
		ctx, err := c.ep.id.Context()
		if err != nil {
			return err
		}
		if c.pd, err = ctx.AllocPD(); err != nil {
			return err
		}
		c.undo.add(c.pd.Close)
	}
	c.undo.add(func() error { return c.cleanups.run() })
	if err := c.ownCQ(&c.sendCQ, o.QP.MaxSendWR, o.Blocking); err != nil {
		return err
	}
	if err := c.ownCQ(&c.recvCQ, o.recvDepth(), o.Blocking); err != nil {
		return err
	}
	var err error
	c.qp, err = c.ep.id.CreateQP(c.pd, &uverbs.QPInitAttr{
		SendCQ: c.sendCQ, RecvCQ: c.recvCQ, SRQ: o.SRQ, Cap: o.QP, SignalAll: o.SignalAll,
	})
	if err != nil {
		return err
	}
	c.undo.add(c.qp.Close)
	return nil
}

// ownCQ makes a completion queue of the connection's own, unless there is one.
func (c *Conn) ownCQ(cq **uverbs.CQ, size uint32, blocking bool) error {
	if *cq != nil {
		return nil
	}
	newChannel := c.pd.Context().NewCompChannel
	if blocking {
		newChannel = c.pd.Context().NewBlockingCompChannel
	}
	ch, err := newChannel()
	if err != nil {
		return err
	}
	c.undo.add(ch.Close)
	if *cq, err = c.pd.Context().CreateCQ(int(max(size, 1)), ch); err != nil {
		return err
	}
	c.undo.add((*cq).Close)
	return nil
}

// QP returns the queue pair. The library closes it.
func (c *Conn) QP() *uverbs.QP { return c.qp }

// PD returns the protection domain of the connection: its own, which Close closes, or that
// of the options.
func (c *Conn) PD() *uverbs.PD { return c.pd }

// SendCQ returns the completion queue of sends.
func (c *Conn) SendCQ() *uverbs.CQ { return c.sendCQ }

// RecvCQ returns the completion queue of receives.
func (c *Conn) RecvCQ() *uverbs.CQ { return c.recvCQ }

// PrivateData returns what the peer's program sent along with the handshake: with its
// request on the accepting side, with its answer on the dialling side. On InfiniBand and
// RoCE it is padded with zeros to 56 or 196 bytes, and so it is if the peer sent none: data
// has to carry its own length. The slice is the caller's.
func (c *Conn) PrivateData() []byte { return c.private }

// LocalAddr returns the address of this end.
func (c *Conn) LocalAddr() netip.AddrPort { return c.ep.id.LocalAddr() }

// RemoteAddr returns the address of the peer.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.ep.id.RemoteAddr() }

// Cleanup makes Close call f when the queue pair is destroyed, before the protection domain
// is: the moment to close memory regions. Functions are called last first. What fails
// before Dial or Accept return cleans up by the same way, so Prepare should use it for all
// that it makes. f must not call methods of c that close or make something. After Close f is
// not called.
func (c *Conn) Cleanup(f func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanups.add(f)
}

// AllocMR makes a memory region on the connection's protection domain, see
// [uverbs.PD.AllocMR]. It is closed with the connection, if not earlier. After Close it is
// net.ErrClosed.
func (c *Conn) AllocMR(size int, access uverbs.AccessFlags) (*uverbs.MR, error) {
	c.mu.Lock() // Close has to see the region, or the region Close
	defer c.mu.Unlock()
	if c.closing {
		return nil, wrap("allocate memory region", noAddr, net.ErrClosed)
	}
	mr, err := c.pd.AllocMR(size, access)
	if err != nil {
		return nil, err
	}
	c.cleanups.add(mr.Close)
	return mr, nil
}

// Done returns a channel that is closed when the connection has ended: the peer
// disconnected, the path broke, the device was removed, or Close was called. Everything
// posted is flushed by then, or about to be, so who waits for completions wakes up too. What
// arrived before is still in the completion queues: poll them before Close, which drops it.
// A change of the peer's address (EventAddrChange, of bonded interfaces) is not an end, and not
// reported.
func (c *Conn) Done() <-chan struct{} { return c.ep.done }

// Err returns nil while the connection lives, then why it ended: ErrDisconnected,
// ErrDeviceRemoved, net.ErrClosed after Close, or another error.
func (c *Conn) Err() error {
	select {
	case <-c.ep.done:
		return c.ep.err
	default:
		return nil
	}
}

// Disconnect ends the connection in order: what is posted is flushed, the peer is told. Done
// is closed when the peer has answered, or has not for long. Close does not need it.
// After the end of the connection it does nothing.
func (c *Conn) Disconnect() error {
	if c.Err() != nil {
		return nil
	}
	return c.ep.id.Disconnect()
}

// Close disconnects and closes all that belongs to the connection: queue pair, own
// completion queues, own protection domain, id, and the device if nobody else uses it. It
// does not wait for the peer. Who waits for own completion queues gets net.ErrClosed.
//
// Memory regions on the own protection domain are to be closed before, or by [Conn.Cleanup].
// If one is left Close fails with ErrBusy, after everybody was woken; close it and call
// Close again. Closing again does nothing.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	live := c.Err() == nil
	c.ep.finish(net.ErrClosed) // before the peer's answer can end it otherwise
	if c.qp != nil && live {
		c.ep.id.Disconnect() // fails where there is no connection yet
	}
	if err := c.undo.run(); err != nil {
		return &Error{Op: "close connection", Addr: text(c.RemoteAddr()), Err: err}
	}
	return nil
}
