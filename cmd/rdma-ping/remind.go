package main

import (
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// reminder is the time after which a first request without an answer is followed by a
// reminder.
const reminder = 100 * time.Millisecond

// remind follows the first message on a connection with empty writes, until stop is called.
// While the driver siw accepts a connection it answers the client first, and only then
// watches for what it sends: a message in between is not seen until something else comes.
// Nobody notices a write of no bytes; on other devices there is none.
func (l *link) remind() (stop func()) {
	if l.conn.PD().Context().Device().Protocol() != "iw" {
		return func() {}
	}
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(reminder)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				// It fails when the connection has ended, or is full of requests.
				_, _ = l.conn.QP().PostSend([]uverbs.SendWR{{Opcode: uverbs.OpRDMAWrite}})
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
