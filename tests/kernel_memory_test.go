//go:build linux

package tests

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

const (
	localWrite  = abi.IB_UVERBS_ACCESS_LOCAL_WRITE
	remoteWrite = abi.IB_UVERBS_ACCESS_REMOTE_WRITE
	remoteRead  = abi.IB_UVERBS_ACCESS_REMOTE_READ
)

// memoryCases register memory.
var memoryCases = []kernelCase{
	{"register", nil, func(r *rig) (fields, error) {
		got, err := r.reg(r.pages(2), localWrite|remoteWrite|remoteRead)
		return fields{"one key": got.Lkey == got.Rkey, "key": got.Lkey != 0}, err
	}},
	{"register for local use", nil, func(r *rig) (fields, error) {
		got, err := r.reg(r.pages(1), localWrite)
		return fields{"remote key": got.Rkey != 0}, err
	}},
	{"register nothing", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, err := r.reg(r.pages(1)[:0], localWrite)
		return nil, err
	}},
	{"register a part of a page", nil, func(r *rig) (fields, error) {
		_, err := r.reg(r.pages(1)[10:20], localWrite)
		return nil, err
	}},
	{"register with remote write alone", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, err := r.reg(r.pages(1), remoteWrite)
		return nil, err
	}},
	{"register with remote atomic alone", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, err := r.reg(r.pages(1), abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC)
		return nil, err
	}},
	{"register with relaxed ordering", nil, func(r *rig) (fields, error) {
		_, err := r.reg(r.pages(1), localWrite|abi.IB_UVERBS_ACCESS_RELAXED_ORDERING)
		return nil, err
	}},
	{"register with an unknown access", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, err := r.reg(r.pages(1), 1<<18)
		return nil, err
	}},
	{"register at an address of another alignment", always(syscall.EINVAL), func(r *rig) (fields, error) {
		in := r.regRequest(r.pages(1), localWrite)
		in.HcaVa += 8
		return nil, r.regRaw(&in, new(abi.IbUverbsRegMrResp))
	}},
	{"register what is not mapped", always(syscall.EFAULT), func(r *rig) (fields, error) {
		mem := r.pages(1)
		in := r.regRequest(mem, localWrite)
		r.must(unix.Munmap(mem))
		return nil, r.regRaw(&in, new(abi.IbUverbsRegMrResp))
	}},
	{"register read-only memory", nil, func(r *rig) (fields, error) {
		_, err := r.reg(r.readOnly(), remoteRead)
		return nil, err
	}},
	{"register read-only memory to write", always(syscall.EFAULT), func(r *rig) (fields, error) {
		_, err := r.reg(r.readOnly(), localWrite)
		return nil, err
	}},
	{"register in an unknown domain", badHandle, func(r *rig) (fields, error) {
		r.pd = 4711
		_, err := r.reg(r.pages(1), localWrite)
		return nil, err
	}},
	{"deregister", nil, func(r *rig) (fields, error) {
		got, err := r.reg(r.pages(1), localWrite)
		r.must(err)
		return nil, r.cmd(uapi.MRDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_MR_HANDLE, got.MrHandle).Do(r.f)
	}},
	{"free a domain with a region", always(syscall.EBUSY), func(r *rig) (fields, error) {
		_, err := r.reg(r.pages(1), localWrite)
		r.must(err)
		return nil, r.destroyPD(r.pd)
	}},
	{"re-register access", rereg, func(r *rig) (fields, error) { return r.rereg(abi.IB_UVERBS_ACCESS_LOCAL_WRITE, 4) }},
	{"re-register domain", rereg, func(r *rig) (fields, error) { return r.rereg(0, 2) }},
	{"re-register translation", reregMemory, func(r *rig) (fields, error) { return r.rereg(0, 1) }},
	{"re-register nothing", reregNothing, func(r *rig) (fields, error) { return r.rereg(0, 0) }},
	// Not of a region that is there: rxe of 7.2 crashes over one without on-demand paging,
	// from which the library keeps it.
	{"advise on no region", rules{{errno: syscall.EOPNOTSUPP}, {driver: "rxe", from: "6.15", errno: syscall.EINVAL}}, func(r *rig) (fields, error) {
		sge := []abi.IbUverbsSge{{Addr: 0, Length: 1, Lkey: 0x12345678}}
		return nil, r.cmd(uapi.AdviseMR).
			Use(abi.UVERBS_ATTR_ADVISE_MR_PD_HANDLE, r.pd).
			Const(abi.UVERBS_ATTR_ADVISE_MR_ADVICE, abi.IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH).
			Flags(abi.UVERBS_ATTR_ADVISE_MR_FLAGS, abi.IB_UVERBS_ADVISE_MR_FLAG_FLUSH).
			In(abi.UVERBS_ATTR_ADVISE_MR_SGE_LIST, uapi.SliceBytes(sge)).Do(r.f)
	}},
	{"register a dma-buf", rules{{errno: syscall.EPROTONOSUPPORT}, {from: "5.12", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		var lkey, rkey uint32
		return nil, r.cmd(uapi.RegDMABufMR).
			New(abi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE).
			Use(abi.UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, r.pd).
			In64(abi.UVERBS_ATTR_REG_DMABUF_MR_OFFSET, 0).In64(abi.UVERBS_ATTR_REG_DMABUF_MR_LENGTH, 4096).
			In64(abi.UVERBS_ATTR_REG_DMABUF_MR_IOVA, 0).In32(abi.UVERBS_ATTR_REG_DMABUF_MR_FD, 0).
			Flags(abi.UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, localWrite).
			Out(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, uapi.Bytes(&lkey)).
			Out(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, uapi.Bytes(&rkey)).Do(r.f)
	}},
}

// rxe re-registers since 6.3, but never the memory itself.
var (
	rereg        = rules{{errno: syscall.EOPNOTSUPP}, {driver: "rxe", from: "6.3"}}
	reregMemory  = rules{{errno: syscall.EOPNOTSUPP}}
	reregNothing = rules{{errno: syscall.EOPNOTSUPP}, {driver: "rxe", from: "6.3", errno: syscall.EINVAL}}
)

func (r *rig) rereg(access, flags uint32) (fields, error) {
	mem := r.pages(1)
	old, err := r.reg(mem, localWrite|remoteRead)
	r.must(err)
	in := abi.IbUverbsReregMr{
		MrHandle: old.MrHandle, Flags: flags, Start: uapi.Addr(mem), HcaVa: uapi.Addr(mem), Length: uint64(len(mem)),
		PdHandle: r.pd, AccessFlags: access,
	}
	var got abi.IbUverbsReregMrResp
	err = r.invoke(uapi.ReregMR, uapi.Bytes(&in), uapi.Bytes(&got), nil, nil)
	if err != nil {
		return nil, err
	}
	return fields{"same local key": got.Lkey == old.Lkey, "remote key": got.Rkey != 0}, nil
}

// pages is memory off the heap, of whole pages.
func (r *rig) pages(n int) []byte {
	r.t.Helper()
	mem, err := unix.Mmap(-1, 0, n*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	r.must(err)
	return mem
}

func (r *rig) readOnly() []byte {
	r.t.Helper()
	f, err := os.Create(r.t.TempDir() + "/data")
	r.must(err)
	defer f.Close()
	r.must(f.Truncate(int64(os.Getpagesize())))
	mem, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	r.must(err)
	return mem
}

func (r *rig) regRequest(mem []byte, access uint32) abi.IbUverbsRegMr {
	addr := uapi.Addr(mem[:1])
	return abi.IbUverbsRegMr{Start: addr, HcaVa: addr, Length: uint64(len(mem)), PdHandle: r.pd, AccessFlags: access}
}

func (r *rig) reg(mem []byte, access uint32) (got abi.IbUverbsRegMrResp, err error) {
	in := r.regRequest(mem, access)
	return got, r.regRaw(&in, &got)
}

func (r *rig) regRaw(in *abi.IbUverbsRegMr, got *abi.IbUverbsRegMrResp) error {
	var drvIn, drvOut []byte
	if !r.rxe() {
		drvIn, drvOut = uapi.Bytes(new(abi.SiwUreqRegMr)), uapi.Bytes(new(abi.SiwUrespRegMr))
	}
	return r.invoke(uapi.RegMR, uapi.Bytes(in), uapi.Bytes(got), drvIn, drvOut)
}
