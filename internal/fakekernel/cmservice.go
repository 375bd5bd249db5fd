//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// resolveService asks the subnet administration for a service, of which Ethernet has none.
func (f *cmFile) resolveService(c cmCall) error {
	in, err := body[abi.RdmaUcmResolveIbService](c)
	if err != nil {
		return err
	}
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	if id.dev == nil || id.state != cmBound {
		return unix.EINVAL
	}
	return unix.EOPNOTSUPP
}

// writeEvent queues an event that the user makes.
func (f *cmFile) writeEvent(c cmCall) error {
	in, err := body[abi.RdmaUcmWriteCmEvent](c)
	if err != nil {
		return err
	}
	if in.Event != EventUser && in.Event != EventInternal {
		return unix.EINVAL
	}
	id, err := f.find(in.Id)
	switch {
	case err != nil:
		return err
	case id.uid == 0:
		return unix.EINVAL
	}
	e := id.event(in.Event, int32(in.Status))
	copy(bytesOf(&e.resp.Param), bytesOf(in.ParamArg()))
	id.post(e)
	return nil
}
