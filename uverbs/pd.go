package uverbs

import (
	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// PD is a protection domain: memory regions and queue pairs work together only within one.
type PD struct {
	object
	ctx    *Context
	handle uint32
}

// AllocPD makes a protection domain. Source: ibv_alloc_pd(3).
func (c *Context) AllocPD() (*PD, error) {
	const op = "allocate protection domain"
	if err := c.begin(op); err != nil {
		return nil, err
	}
	defer c.end()
	var (
		in   abi.IbUverbsAllocPd
		resp abi.IbUverbsAllocPdResp
	)
	out := make([]byte, c.prov.pdOut)
	if err := uapi.Invoke(c.k.file, c.k.driver, uapi.AllocPD, uapi.Bytes(&in), uapi.Bytes(&resp), nil, out); err != nil {
		return nil, wrap(op, c.device, err)
	}
	p := &PD{object: object{kind: "protection domain", device: c.device}, ctx: c, handle: resp.PdHandle}
	if err := p.adopt(p, &c.object); err != nil {
		p.destroy()
		return nil, err
	}
	return p, nil
}

// Context returns the context that p belongs to.
func (p *PD) Context() *Context { return p.ctx }

func (p *PD) String() string { return "protection domain" }

// Close frees the protection domain. It fails with ErrBusy while memory regions or queue
// pairs of it are open. Closing again does nothing.
func (p *PD) Close() error { return p.object.close(p, p.destroy) }

func (p *PD) destroy() error {
	cmd := p.ctx.k.command(uapi.PDDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, p.handle)
	return gone(cmd.Do(p.ctx.k.file))
}
