package rxe

import (
	"unsafe"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// SRQPlan is the driver's part of creating a shared receive queue.
type SRQPlan struct{ resp abi.RxeCreateSrqResp }

// Out is the memory for the driver's response.
func (p *SRQPlan) Out() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&p.resp)), unsafe.Sizeof(p.resp))
}

// Attach maps the queue that the kernel made.
func (p *SRQPlan) Attach(m provider.Mapper, maxSGE uint32) (*SRQ, error) {
	return attachSRQ(m, &p.resp.Mi, maxSGE)
}

func attachSRQ(m provider.Mapper, mi *abi.Mminfo, maxSGE uint32) (*SRQ, error) {
	r, err := attach(m, mi, int(recvHead+uintptr(maxSGE)*sgeSize))
	if err != nil {
		return nil, err
	}
	r.resume(r.producer)
	return &SRQ{r}, nil
}

// SRQ is the producer's side of a shared receive queue. The caller serialises.
type SRQ struct{ rq *ring }

// Recv encodes one receive request; total is the length of its pieces.
func (s *SRQ) Recv(wr *provider.RecvWR, total uint32) error { return putRecv(s.rq, wr, total) }

// Posted is how many receive requests the kernel has not taken yet.
func (s *SRQ) Posted() uint32 {
	return mmio.Used(s.rq.own, mmio.LoadAcquire32(s.rq.consumer), s.rq.mask)
}

// PublishRecv shows the encoded receive requests to the kernel. There is no doorbell.
func (s *SRQ) PublishRecv() { s.rq.publish() }

// Close unmaps the queue.
func (s *SRQ) Close() error { return s.rq.close() }

// ResizePlan is the driver's part of changing the length of a shared receive queue: the
// kernel writes where the new queue is to the address that it is given. Room must stay
// where it is during the call.
type ResizePlan struct {
	cmd  abi.RxeModifySrqCmd
	room []byte
}

// NewResizePlan takes room for the answer, and its address.
func NewResizePlan(room []byte, addr uint64) *ResizePlan {
	return &ResizePlan{cmd: abi.RxeModifySrqCmd{MmapInfoAddr: addr}, room: room}
}

// In is the driver's input.
func (p *ResizePlan) In() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&p.cmd)), unsafe.Sizeof(p.cmd))
}

// Attach maps the new queue, into which the kernel has moved what was in the old one.
func (p *ResizePlan) Attach(m provider.Mapper, maxSGE uint32) (*SRQ, error) {
	if uintptr(len(p.room)) < unsafe.Sizeof(abi.Mminfo{}) {
		return nil, provider.ErrCorrupt
	}
	mi := *(*abi.Mminfo)(unsafe.Pointer(&p.room[0]))
	return attachSRQ(m, &mi, maxSGE)
}
