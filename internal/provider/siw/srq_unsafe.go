package siw

import (
	"unsafe"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// SRQPlan is the driver's part of creating a shared receive queue.
type SRQPlan struct{ resp abi.SiwUrespCreateSrq }

// Out is the memory for the driver's response.
func (p *SRQPlan) Out() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&p.resp)), unsafe.Sizeof(p.resp))
}

// Attach maps the queue that the kernel made.
func (p *SRQPlan) Attach(m provider.Mapper, maxSGE uint32) (*SRQ, error) {
	if err := checkSGE(maxSGE); err != nil {
		return nil, err
	}
	rq, err := attachProducer(m, p.resp.SrqKey, p.resp.NumRqe, unsafe.Sizeof(abi.SiwRqe{}))
	if err != nil {
		return nil, err
	}
	return &SRQ{rq}, nil
}

// SRQ is the producer's side of a shared receive queue. The caller serialises.
type SRQ struct{ rq *producer }

// Recv encodes one receive request; total is the length of its pieces.
func (s *SRQ) Recv(wr *provider.RecvWR, total uint32) error { return putRecv(s.rq, wr) }

// PublishRecv hands the encoded receive requests to the kernel. There is no doorbell.
func (s *SRQ) PublishRecv() { s.rq.publish() }

// Close unmaps the queue.
func (s *SRQ) Close() error { return s.rq.close() }
