package howto

import (
	"context"
	"errors"
	"sync"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

const slotSize = 256

// Many is an echo server for any number of clients, who share its memory, its receives and its
// completion queue. One goroutine does the work of all.
type Many struct {
	slots   int
	pd      *uverbs.PD
	channel *uverbs.CompChannel
	cq      *uverbs.CQ
	srq     *uverbs.SRQ
	mr      *uverbs.MR
	made    closing

	mu      sync.Mutex // completions are taken and handled with it, and clients come and go
	wcs     [64]uverbs.WC
	idle    *sync.Cond         // an answer is out
	clients map[uint32]*client // by the number of the queue pair
}

type client struct {
	conn  *rdmacm.Conn
	ready bool        // Accept has returned: on iWARP the queue pair can send from then on
	early []uverbs.WC // what came before
	busy  int         // answers under way
}

// NewMany makes what the clients share, on an open device.
func NewMany(dev *uverbs.Context, slots int) (m *Many, err error) {
	m = &Many{slots: slots, clients: map[uint32]*client{}}
	m.idle = sync.NewCond(&m.mu)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.made.close())
		}
	}()
	if m.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	m.made.add(m.pd.Close)
	if m.channel, err = dev.NewCompChannel(); err != nil {
		return nil, err
	}
	m.made.add(m.channel.Close)
	// A slot is at one place at a time: room for a completion of each is enough.
	if m.cq, err = dev.CreateCQ(slots, m.channel); err != nil {
		return nil, err
	}
	m.made.add(m.cq.Close)
	if m.srq, err = m.pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: uint32(slots), MaxSGE: 1}); err != nil {
		return nil, err
	}
	m.made.add(m.srq.Close)
	if m.mr, err = m.pd.AllocMR(slots*slotSize, uverbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	m.made.add(m.mr.Close)
	for slot := range slots {
		if err := m.postReceive(uint64(slot)); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Options are those of the listener.
func (m *Many) Options(system ...rdmacm.Option) *rdmacm.Options {
	return &rdmacm.Options{
		PD: m.pd, SendCQ: m.cq, RecvCQ: m.cq, SRQ: m.srq, SignalAll: true, System: system,
		QP: uverbs.QPCap{MaxSendWR: uint32(m.slots), MaxSendSGE: 1},
		Prepare: func(c *rdmacm.Conn) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.clients[c.QP().Num()] = &client{conn: c}
			c.Cleanup(func() error { return m.forget(c) }) // also if it never gets to be one
			return nil
		},
	}
}

func (m *Many) forget(c *rdmacm.Conn) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.clients[c.QP().Num()]
	if known == nil || known.conn != c {
		return nil // attend was here, or it is the next one with that number
	}
	delete(m.clients, c.QP().Num())
	return m.handle(known.early) // which posts the slots again
}

// Serve takes clients from a listener with the options of m until ctx ends.
func (m *Many) Serve(ctx context.Context, l *rdmacm.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The work goes on until the last client has been parted with.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	worked := make(chan error, 1)
	go func() {
		defer cancel()
		worked <- m.work(working)
	}()
	var clients sync.WaitGroup
	err := accept(ctx, l, func(conn *rdmacm.Conn) { clients.Go(func() { m.attend(ctx, conn) }) })
	clients.Wait()
	stop()
	return errors.Join(err, <-worked)
}

func accept(ctx context.Context, l *rdmacm.Listener, each func(*rdmacm.Conn)) error {
	for {
		conn, err := l.Accept(ctx)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		each(conn)
	}
}

// work takes the completions of all clients, in three steps that lose none: ask for an event,
// take all that are there, wait for the event of the next. [uverbs.CQ.Wait] does that in one,
// but hands completions out; here none may be in anybody's hands when a client is closed, as
// the next client may get the number of its queue pair.
func (m *Many) work(ctx context.Context) error {
	for {
		if err := m.cq.Arm(false); err != nil {
			return err
		}
		if err := m.take(); err != nil {
			return err
		}
		if _, err := m.channel.NextEvent(ctx); err != nil {
			return unlessEnded(ctx, err)
		}
	}
}

// take handles what is in the completion queue.
func (m *Many) take() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.drain()
}

// drain has the lock.
func (m *Many) drain() error {
	for {
		n, err := m.cq.Poll(m.wcs[:])
		if n == 0 || err != nil {
			return err
		}
		if err := m.handle(m.wcs[:n]); err != nil {
			return err
		}
	}
}

// answered marks the number of an answer; the rest of it is the slot.
const answered = 1 << 32

// handle has the lock. A slot comes with a request, leaves with the answer, and is then posted
// again, for whoever is next.
func (m *Many) handle(wcs []uverbs.WC) error {
	for i := range wcs {
		wc := &wcs[i]
		slot, c := wc.ID&^answered, m.clients[wc.QPNum]
		if wc.ID&answered != 0 { // sent, or flushed with the connection
			c.busy--
			m.idle.Broadcast()
		} else if c != nil && !c.ready {
			c.early = append(c.early, *wc)
			continue
		} else if c != nil && wc.Err() == nil && m.answer(c, slot, int(wc.ByteLen)) == nil {
			continue
		}
		if err := m.postReceive(slot); err != nil {
			return err
		}
	}
	return nil
}

func (m *Many) answer(c *client, slot uint64, length int) error {
	wr := uverbs.SendWR{ID: slot | answered, Opcode: uverbs.OpSend, SGL: []uverbs.SGE{m.mr.SGE(int(slot)*slotSize, length)}}
	_, err := c.conn.QP().PostSend([]uverbs.SendWR{wr})
	if err == nil {
		c.busy++
	}
	return err
}

func (m *Many) postReceive(slot uint64) error {
	_, err := m.srq.PostRecv([]uverbs.RecvWR{{ID: slot, SGL: []uverbs.SGE{m.mr.SGE(int(slot)*slotSize, slotSize)}}})
	return err
}

// welcome answers what came before there was a connection.
func (m *Many) welcome(conn *rdmacm.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clients[conn.QP().Num()]
	c.ready = true
	m.handle(c.early) //nolint:errcheck // a queue that is broken ends work
	c.early = nil
}

// attend waits for the end of a connection and clears it away. Closing the queue pair drops its
// completions, and each stands for a slot: they are all taken before.
func (m *Many) attend(ctx context.Context, conn *rdmacm.Conn) {
	m.welcome(conn)
	select {
	case <-conn.Done():
	case <-ctx.Done():
	}
	conn.Disconnect() //nolint:errcheck // the peer may have been first
	m.mu.Lock()
	for m.drain() == nil && m.clients[conn.QP().Num()].busy > 0 {
		m.idle.Wait()
	}
	delete(m.clients, conn.QP().Num())
	m.mu.Unlock()
	conn.Close() //nolint:errcheck // nothing can be done about it, and the others go on
}

// Close gives back what the clients shared, when Serve has returned.
func (m *Many) Close() error { return m.made.close() }
