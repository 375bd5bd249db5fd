//go:build linux

package fakekernel

import (
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
)

// cmDev is the number of rdma_cm, a misc device.
var cmDev = discover.MakeDev(10, 58)

// transport is a socket of RDMA netlink.
type transport struct{ k *Kernel }

func (t transport) Close() error { return nil }

// Execute answers one request as mdlayher's connection hands the kernel's answer on.
func (t transport) Execute(m netlink.Message) ([]netlink.Message, error) {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	payloads, errno := t.k.answer(m)
	if errno != 0 {
		return nil, &netlink.OpError{Op: "receive", Err: errno}
	}
	replies := make([]netlink.Message, len(payloads))
	for i, p := range payloads {
		replies[i] = netlink.Message{Header: netlink.Header{Type: m.Header.Type}, Data: p}
	}
	return replies, nil
}

// netlinkRequest is what the requests known here may ask for.
type netlinkRequest struct {
	index    uint32
	hasIndex bool
	charDev  string
}

func (k *Kernel) answer(m netlink.Message) ([][]byte, unix.Errno) {
	req, err := parseRequest(m.Data)
	if err != nil {
		return nil, unix.EINVAL
	}
	dump := m.Header.Flags&netlink.Dump == netlink.Dump
	switch uint16(m.Header.Type) {
	case abi.RDMA_NL_GET_TYPE(abi.RDMA_NL_NLDEV, abi.RDMA_NLDEV_CMD_GET):
		return k.answerGet(req, dump)
	case abi.RDMA_NL_GET_TYPE(abi.RDMA_NL_NLDEV, abi.RDMA_NLDEV_CMD_PORT_GET):
		return k.answerPort(req)
	case abi.RDMA_NL_GET_TYPE(abi.RDMA_NL_NLDEV, abi.RDMA_NLDEV_CMD_GET_CHARDEV):
		return k.answerCharDev(req)
	case abi.RDMA_NL_GET_TYPE(abi.RDMA_NL_NLDEV, abi.RDMA_NLDEV_CMD_SYS_GET):
		return encode(func(e *netlink.AttributeEncoder) {
			e.Uint8(abi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 1)
			e.Uint8(abi.RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1)
		})
	}
	return nil, unix.EINVAL
}

func parseRequest(b []byte) (r netlinkRequest, err error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return r, err
	}
	for ad.Next() {
		switch ad.Type() {
		case abi.RDMA_NLDEV_ATTR_DEV_INDEX:
			r.index, r.hasIndex = ad.Uint32(), true
		case abi.RDMA_NLDEV_ATTR_CHARDEV_TYPE:
			r.charDev = ad.String()
		}
	}
	return r, ad.Err()
}

func encode(fill func(*netlink.AttributeEncoder)) ([][]byte, unix.Errno) {
	e := netlink.NewAttributeEncoder()
	fill(e)
	b, err := e.Encode()
	if err != nil {
		return nil, unix.EMSGSIZE
	}
	return [][]byte{b}, 0
}

// byIndex returns the device that a request names, nil if there is none.
func (k *Kernel) byIndex(r netlinkRequest) *device {
	if r.hasIndex && int(r.index) < len(k.devices) && !k.devices[r.index].dead {
		return k.devices[r.index]
	}
	return nil
}

func (k *Kernel) answerGet(r netlinkRequest, dump bool) ([][]byte, unix.Errno) {
	if !dump {
		d := k.byIndex(r)
		if d == nil {
			return nil, unix.EINVAL
		}
		return encode(d.describe)
	}
	var all [][]byte
	for _, d := range k.devices {
		if d.dead {
			continue
		}
		one, errno := encode(d.describe)
		if errno != 0 {
			return nil, errno
		}
		all = append(all, one...)
	}
	return all, 0
}

func (d *device) describe(e *netlink.AttributeEncoder) {
	e.Uint32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, d.index)
	e.String(abi.RDMA_NLDEV_ATTR_DEV_NAME, d.Name)
	e.Uint32(abi.RDMA_NLDEV_ATTR_PORT_INDEX, 1)
	e.Uint64(abi.RDMA_NLDEV_ATTR_CAP_FLAGS, uint64(d.drv.attributes(d).DeviceCapFlags))
	e.Uint64(abi.RDMA_NLDEV_ATTR_NODE_GUID, d.GUID)
	e.Uint64(abi.RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, d.GUID)
	e.Uint8(abi.RDMA_NLDEV_ATTR_DEV_NODE_TYPE, d.drv.link().nodeType)
	e.String(abi.RDMA_NLDEV_ATTR_DEV_PROTOCOL, d.drv.link().protocol)
}

func (k *Kernel) answerPort(r netlinkRequest) ([][]byte, unix.Errno) {
	d := k.byIndex(r)
	if d == nil {
		return nil, unix.EINVAL
	}
	return encode(func(e *netlink.AttributeEncoder) {
		e.Uint32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, d.index)
		e.String(abi.RDMA_NLDEV_ATTR_DEV_NAME, d.Name)
		e.Uint32(abi.RDMA_NLDEV_ATTR_PORT_INDEX, 1)
		e.Uint8(abi.RDMA_NLDEV_ATTR_PORT_STATE, d.portState())
		if d.Foreign {
			return
		}
		e.Uint32(abi.RDMA_NLDEV_ATTR_NDEV_INDEX, d.IfIndex)
		e.String(abi.RDMA_NLDEV_ATTR_NDEV_NAME, d.NetDev)
	})
}

func (k *Kernel) answerCharDev(r netlinkRequest) ([][]byte, unix.Errno) {
	switch r.charDev {
	case "rdma_cm":
		if k.opts.NoCM {
			return nil, unix.EOPNOTSUPP
		}
		return encode(func(e *netlink.AttributeEncoder) {
			e.Uint64(abi.RDMA_NLDEV_ATTR_CHARDEV, uint64(cmDev))
			e.Uint64(abi.RDMA_NLDEV_ATTR_CHARDEV_ABI, abi.RDMA_USER_CM_ABI_VERSION)
			e.String(abi.RDMA_NLDEV_ATTR_CHARDEV_NAME, "rdma_cm")
		})
	case "uverbs":
		d := k.byIndex(r)
		if d == nil {
			return nil, unix.EINVAL
		}
		if d.NoVerbs {
			return nil, unix.EOPNOTSUPP
		}
		return encode(func(e *netlink.AttributeEncoder) {
			e.Uint64(abi.RDMA_NLDEV_ATTR_CHARDEV, uint64(d.dev()))
			e.Uint64(abi.RDMA_NLDEV_ATTR_CHARDEV_ABI, uint64(d.ABI))
			e.String(abi.RDMA_NLDEV_ATTR_CHARDEV_NAME, d.sysName())
			e.Uint32(abi.RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, d.Driver)
		})
	}
	return nil, unix.EOPNOTSUPP
}
