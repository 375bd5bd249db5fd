//go:build linux

package tests

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// cmMigrateCases move ids from one file to another.
var cmMigrateCases = []kernelCase{
	{"from a file that is none", always(syscall.ENOENT), func(r *rig) (fields, error) {
		c := r.cm()
		_, err := c.migrate(c.tcp(1), 1<<20)
		return nil, err
	}},
	{"from a file of another kind", inval, func(r *rig) (fields, error) {
		c := r.cm()
		_, err := c.migrate(c.tcp(1), 0)
		return nil, err
	}},
	{"an id that is not there", always(syscall.ENOENT), func(r *rig) (fields, error) {
		_, err := r.cm().migrate(1<<30, r.cm().fd)
		return nil, err
	}},
	{"an id of a third file", inval, func(r *rig) (fields, error) {
		_, err := r.cm().migrate(r.cm().tcp(1), r.cm().fd)
		return nil, err
	}},
	{"to its own file", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.resolve(id, netip.AddrPort{}, r.at(7180)))
		c.wait()
		n, err := c.migrate(id, c.fd)
		return fields{"reported": n, "event": c.next().Event}, err
	}},
	{"without room", nil, func(r *rig) (fields, error) {
		old, c := r.cm(), r.cm()
		in := abi.RdmaUcmMigrateId{Id: old.tcp(1), Fd: old.fd}
		out := make([]byte, 4)
		return nil, c.ask(abi.RDMA_USER_CM_CMD_MIGRATE_ID, uapi.Bytes(&in), 0, out[:0:4])
	}},
	{"with events, some of which were fetched", nil, func(r *rig) (fields, error) {
		old, c := r.cm(), r.cm()
		id, other := old.tcp(1), old.tcp(2)
		old.resolved(id, 7181, 7180)
		old.must(old.route(id))
		old.wait()
		old.must(old.resolve(other, netip.AddrPort{}, r.at(7180)))
		n, err := c.migrate(id, old.fd)
		c.must(err)
		f := fields{"reported": n, "moved": c.next().Event, "left": old.next().Uid}
		_, err = old.poll()
		f["old"] = errors.Is(err, syscall.EAGAIN)
		f["old owns"] = fmt.Sprint(old.disconnect(id))
		f["all"], err = c.destroy(id)
		return f, err
	}},
	{"a listener with requests" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.pair(7180)
		second := p.a.dial(3, abi.RDMA_PS_TCP, 7182, 7180)
		p.a.must(p.a.connect(p.from, param(r.number(), 0)))
		first := p.b.expect(evRequest).Id
		p.a.must(p.a.connect(second, param(r.number()+1, 0)))
		p.b.wait()
		c := r.cm()
		n, err := c.migrate(p.l, p.b.fd)
		c.must(err)
		child := c.expect(evRequest).Id
		f := fields{
			"reported": n, "first": fmt.Sprint(p.b.reject(first, 0, 0)),
			"second there": fmt.Sprint(c.reject(child, 0, 0)), "second here": fmt.Sprint(p.b.reject(child, 0, 0)),
		}
		f["events"], err = c.destroy(p.l)
		return f, err
	}},
	{"with a group" + rxeOnly, nil, func(r *rig) (fields, error) {
		old, c := r.cm(), r.cm()
		id := old.boundUDP()
		m, err := old.join(id, mcastGID, 0)
		old.must(err)
		old.wait()
		_, err = c.migrate(id, old.fd)
		c.must(err)
		_, here := old.leave(m)
		f := fields{"event": c.next().Event, "here": fmt.Sprint(here)}
		f["events"], err = c.leave(m)
		return f, err
	}},
}

func (c cm) migrate(id, fd uint32) (uint32, error) {
	var r abi.RdmaUcmMigrateResp
	err := c.ask(abi.RDMA_USER_CM_CMD_MIGRATE_ID, uapi.Bytes(&abi.RdmaUcmMigrateId{Id: id, Fd: fd}), 0, uapi.Bytes(&r))
	return r.EventsReported, err
}
