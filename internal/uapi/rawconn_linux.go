package uapi

import (
	"net"
	"syscall"
)

var _ syscall.Conn = (*eventFile)(nil)

// SyscallConn gives access to the descriptor, for a poller of the program's own and for
// MIGRATE_ID. It leaves the descriptor non-blocking, so that deadlines go on working.
func (e *eventFile) SyscallConn() (syscall.RawConn, error) {
	select {
	case <-e.closed:
		return nil, net.ErrClosed
	default:
		return e.rc, nil
	}
}
