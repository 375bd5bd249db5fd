package rdmacm

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/uverbs"
)

// notSupported is ErrNotSupported with what it is that is not.
func notSupported(what string) error { return fmt.Errorf("%w: %s", ErrNotSupported, what) }

// newCommand issues a command that older kernels do not have. They say EINVAL then, which the
// command may say itself: where it does not matter what it is about, with an id that nobody has,
// a kernel that has the command says ENOENT.
func (c *EventChannel) newCommand(cmd uint32, in, probe []byte) error {
	err := c.call(cmd, in)
	switch {
	case errors.Is(err, syscall.ENOSYS):
	case errors.Is(err, syscall.EINVAL) && errors.Is(c.call(cmd, probe), syscall.EINVAL):
	default:
		return err
	}
	return notSupported("this kernel is too old; 7.2 has it, 6.12 has not")
}

// nobody is an id that the kernel does not give.
const nobody = 1<<32 - 1

// Service names a service of an InfiniBand fabric, by id, by name, or by both.
type Service struct {
	ID   uint64 // 0 stands for any
	Name string // up to 63 bytes, "" for any
}

// ResolveService finds the port that offers a service: it asks the subnet administration, and
// makes the first answer the id's peer. The id needs the address of a device, by Bind. The answer
// comes as EventServiceResolved, after which ResolveRoute goes on and [ID.ServiceRecords] has the
// records, or as EventServiceError.
//
// Errors: ErrNotSupported on a kernel before 7.2 (6.12 has it not), and on devices other than
// InfiniBand. Source: rdma_resolve_addrinfo(3).
func (id *ID) ResolveService(s Service) error {
	return id.do(opService, noAddr, func() error {
		in, err := s.kernel()
		if err != nil {
			return err
		}
		probe := abi.RdmaUcmResolveIbService{Id: nobody}
		in.Id = id.kid
		err = id.ch.newCommand(abi.RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE, uapi.Bytes(in), uapi.Bytes(&probe))
		if errors.Is(err, syscall.EOPNOTSUPP) {
			return notSupported("the device is not on InfiniBand")
		}
		return err
	})
}

func (s *Service) kernel() (*abi.RdmaUcmResolveIbService, error) {
	in := new(abi.RdmaUcmResolveIbService)
	if s.ID == 0 && s.Name == "" {
		return nil, invalidError("no service")
	}
	if len(s.Name) >= len(in.Ibs.ServiceName) {
		return nil, invalidError("the name of the service is too long")
	}
	if s.ID != 0 {
		in.Ibs.ServiceId = s.ID
		in.Ibs.Flags |= abi.RDMA_USER_CM_IB_SERVICE_FLAG_ID
	}
	if s.Name != "" {
		copy(in.Ibs.ServiceName[:], s.Name)
		in.Ibs.Flags |= abi.RDMA_USER_CM_IB_SERVICE_FLAG_NAME
	}
	return in, nil
}

// ServiceRecord is what the subnet administration knows of a service (IBTA volume 1,
// 15.2.5.14). The data is the service's own.
type ServiceRecord struct {
	ID     uint64
	GID    uverbs.GID
	PKey   uint16
	Lease  uint32 // seconds
	Key    [16]byte
	Name   string
	Data8  [16]byte
	Data16 [8]uint16
	Data32 [4]uint32
	Data64 [2]uint64
}

// maxServices bounds the answer that is asked for.
const maxServices = 64

type serviceQuery struct {
	head abi.RdmaUcmQueryIbServiceResp
	recs [maxServices]abi.IbUserServiceRec
}

// ServiceRecords returns what ResolveService found, up to 64 records. Errors: ENODATA before
// EventServiceResolved; ErrNotSupported on a kernel before 7.2. Source:
// rdma_query_addrinfo(3).
func (id *ID) ServiceRecords() ([]ServiceRecord, error) {
	var recs []ServiceRecord
	err := id.do("query service", noAddr, func() error {
		in := abi.RdmaUcmQuery{Id: id.kid, Option: abi.RDMA_USER_CM_QUERY_IB_SERVICE}
		out := new(serviceQuery)
		err := id.ch.ask(abi.RDMA_USER_CM_CMD_QUERY, uapi.Bytes(&in), 0, uapi.Bytes(out))
		if errors.Is(err, syscall.ENOSYS) {
			return notSupported("this kernel is too old; 7.2 has it, 6.12 has not")
		}
		if err != nil {
			return err
		}
		for i := range out.recs[:min(out.head.NumServiceRecs, maxServices)] {
			recs = append(recs, serviceRecord(&out.recs[i]))
		}
		return nil
	})
	return recs, err
}

func serviceRecord(k *abi.IbUserServiceRec) ServiceRecord {
	name, _, _ := bytes.Cut(k.Name[:], []byte{0})
	r := ServiceRecord{
		ID: k.Id.Get(), GID: k.Gid, PKey: k.Pkey.Get(), Lease: k.Lease.Get(), Key: k.Key, Name: string(name), Data8: k.Data8,
	}
	for i := range k.Data16 {
		r.Data16[i] = k.Data16[i].Get()
	}
	for i := range k.Data32 {
		r.Data32[i] = k.Data32[i].Get()
	}
	for i := range k.Data64 {
		r.Data64[i] = k.Data64[i].Get()
	}
	return r
}

// WriteEvent puts an event into the id's channel, behind those that wait there: a way to wake
// the loop that receives them, with a number for it. typ is EventUser or EventInternal; status
// and arg come back in the [Event].
//
// Errors: ErrNotSupported on a kernel before 7.2 (6.12 has it not). Source:
// rdma_write_cm_event(3).
func (id *ID) WriteEvent(typ EventType, status int32, arg uint64) error {
	return id.do(opWrite, noAddr, func() error {
		switch {
		case typ != EventUser && typ != EventInternal:
			return invalidError("only EventUser and EventInternal can be written")
		case id.state == stateRequested:
			return invalidError("the id has no events before its request is accepted")
		}
		in := abi.RdmaUcmWriteCmEvent{Id: id.kid, Event: uint32(typ), Status: uint32(status)}
		*in.ParamArg() = arg
		probe := abi.RdmaUcmWriteCmEvent{Id: nobody, Event: uint32(typ)}
		return id.ch.newCommand(abi.RDMA_USER_CM_CMD_WRITE_CM_EVENT, uapi.Bytes(&in), uapi.Bytes(&probe))
	})
}
