package discover

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// fakeNL answers RDMA netlink requests from a list, as the kernel does: one
// message an object, EINVAL for an index that is not there.
type fakeNL struct {
	t           *testing.T
	devs        []fakeDev
	cm          *fakeDev
	fail        map[uint16]error // operation -> what it answers
	before      func(op uint16)  // runs before each request
	interrupted int              // so many dumps are marked as interrupted
	sys         map[uint16]uint8
	requests    []netlink.Message
	open        int
}

type fakeDev struct {
	index    uint32
	name     string
	chardev  string
	dev      Dev
	driver   uint32 // 0: the kernel does not tell
	protocol string
	ports    []string // interface of each port
	failCD   error
}

// system returns a System on the fake and on a tree with files.
func (k *fakeNL) system(nodes nodes, files map[string]string) *System {
	return &System{
		Root:   tree(k.t, files),
		Opener: nodes,
		Netlink: func() (Transport, error) {
			k.open++
			return k, nil
		},
	}
}

func (k *fakeNL) Close() error {
	k.open--
	return nil
}

func (k *fakeNL) Execute(m netlink.Message) ([]netlink.Message, error) {
	k.requests = append(k.requests, m)
	if client := abi.RDMA_NL_GET_CLIENT(uint16(m.Header.Type)); client != abi.RDMA_NL_NLDEV {
		k.t.Errorf("request of client %d, want NLDEV", client)
	}
	if m.Header.Flags&netlink.Request == 0 {
		k.t.Error("request without NLM_F_REQUEST")
	}
	op := abi.RDMA_NL_GET_OP(uint16(m.Header.Type))
	if k.before != nil {
		k.before(op)
	}
	if err := k.fail[op]; err != nil {
		return nil, &netlink.OpError{Op: "receive", Err: err}
	}
	payloads, err := k.answer(op, m.Header.Flags, attributes(k.t, m.Data))
	if err != nil {
		return nil, &netlink.OpError{Op: "receive", Err: err}
	}
	var flags netlink.HeaderFlags
	if m.Header.Flags&netlink.Dump == netlink.Dump && k.interrupted > 0 {
		k.interrupted--
		flags = netlink.DumpInterrupted
		payloads = payloads[:1]
	}
	replies := make([]netlink.Message, len(payloads))
	for i, b := range payloads {
		replies[i] = netlink.Message{Header: netlink.Header{Type: m.Header.Type, Flags: flags}, Data: b}
	}
	return replies, nil
}

// attributes decodes a request; numbers stay bytes.
func attributes(t *testing.T, b []byte) map[uint16][]byte {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		t.Fatalf("request does not decode: %v", err)
	}
	attrs := map[uint16][]byte{}
	for ad.Next() {
		attrs[ad.Type()] = ad.Bytes()
	}
	return attrs
}

func (k *fakeNL) answer(op uint16, flags netlink.HeaderFlags, attrs map[uint16][]byte) ([][]byte, error) {
	switch op {
	case abi.RDMA_NLDEV_CMD_GET:
		if flags&netlink.Dump == netlink.Dump {
			return k.all(), nil
		}
		d, err := k.find(attrs)
		return [][]byte{d.get(k.t)}, err
	case abi.RDMA_NLDEV_CMD_PORT_GET:
		d, err := k.find(attrs)
		return d.portGet(k.t), err
	case abi.RDMA_NLDEV_CMD_GET_CHARDEV:
		return k.getCharDev(attrs)
	case abi.RDMA_NLDEV_CMD_SYS_GET:
		return [][]byte{encoded(k.t, func(ae *netlink.AttributeEncoder) {
			for typ, v := range k.sys {
				ae.Uint8(typ, v)
			}
		})}, nil
	case abi.RDMA_NLDEV_CMD_NEWLINK:
		k.devs = append(k.devs, fakeDev{index: uint32(len(k.devs)), name: text(attrs[abi.RDMA_NLDEV_ATTR_DEV_NAME])})
		return nil, nil
	case abi.RDMA_NLDEV_CMD_DELLINK:
		d, err := k.find(attrs)
		for i := range k.devs {
			if err == nil && k.devs[i].index == d.index {
				k.devs = append(k.devs[:i], k.devs[i+1:]...)
				break
			}
		}
		return nil, err
	}
	return nil, syscall.EINVAL
}

func text(b []byte) string { return strings.TrimRight(string(b), "\x00") }

func (k *fakeNL) all() (payloads [][]byte) {
	for _, d := range k.devs {
		payloads = append(payloads, d.get(k.t))
	}
	return payloads
}

func (k *fakeNL) find(attrs map[uint16][]byte) (fakeDev, error) {
	for _, d := range k.devs {
		want := encoded(k.t, func(ae *netlink.AttributeEncoder) { ae.Uint32(1, d.index) })
		if string(want[4:]) == string(attrs[abi.RDMA_NLDEV_ATTR_DEV_INDEX]) {
			return d, nil
		}
	}
	return fakeDev{}, syscall.EINVAL
}

func (k *fakeNL) getCharDev(attrs map[uint16][]byte) ([][]byte, error) {
	switch text(attrs[abi.RDMA_NLDEV_ATTR_CHARDEV_TYPE]) {
	case "uverbs":
		d, err := k.find(attrs)
		if err == nil {
			err = d.failCD
		}
		return [][]byte{d.charDev(k.t)}, err
	case "rdma_cm":
		if k.cm == nil {
			return nil, syscall.EOPNOTSUPP
		}
		return [][]byte{k.cm.charDev(k.t)}, nil
	}
	return nil, syscall.EOPNOTSUPP
}

func encoded(t testing.TB, fill encode) []byte {
	ae := netlink.NewAttributeEncoder()
	fill(ae)
	b, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (d fakeDev) get(t testing.TB) []byte {
	return encoded(t, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, d.index)
		ae.String(abi.RDMA_NLDEV_ATTR_DEV_NAME, d.name)
		ae.Uint32(abi.RDMA_NLDEV_ATTR_PORT_INDEX, uint32(len(d.ports)))
		ae.Uint64(abi.RDMA_NLDEV_ATTR_CAP_FLAGS, 0x221c76)
		ae.Uint64(abi.RDMA_NLDEV_ATTR_NODE_GUID, 0x5054_00ff_fe00_0000|uint64(d.index))
		ae.Uint8(abi.RDMA_NLDEV_ATTR_DEV_NODE_TYPE, abi.RDMA_NODE_IB_CA)
		if d.protocol != "" {
			ae.String(abi.RDMA_NLDEV_ATTR_DEV_PROTOCOL, d.protocol)
		}
	})
}

func (d fakeDev) portGet(t testing.TB) (payloads [][]byte) {
	for i, netdev := range d.ports {
		payloads = append(payloads, encoded(t, func(ae *netlink.AttributeEncoder) {
			ae.Uint32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, d.index)
			ae.Uint32(abi.RDMA_NLDEV_ATTR_PORT_INDEX, uint32(i+1))
			if netdev != "" {
				ae.Uint32(abi.RDMA_NLDEV_ATTR_NDEV_INDEX, 7)
				ae.String(abi.RDMA_NLDEV_ATTR_NDEV_NAME, netdev)
			}
		}))
	}
	return payloads
}

func (d fakeDev) charDev(t testing.TB) []byte {
	return encoded(t, func(ae *netlink.AttributeEncoder) {
		if d.driver != 0 {
			ae.Uint32(abi.RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, d.driver)
		}
		ae.Uint64(abi.RDMA_NLDEV_ATTR_CHARDEV, uint64(d.dev))
		version := uint64(2)
		if d.chardev == "rdma_cm" {
			version = abi.RDMA_USER_CM_ABI_VERSION
		}
		ae.Uint64(abi.RDMA_NLDEV_ATTR_CHARDEV_ABI, version)
		ae.String(abi.RDMA_NLDEV_ATTR_CHARDEV_NAME, d.chardev)
	})
}

// rxe returns a device as rdma_rxe makes them.
func rxe(index uint32, name, netdev string) fakeDev {
	number := utoa(index)
	return fakeDev{
		index: index, name: name, chardev: "uverbs" + number, dev: MakeDev(231, 192+index),
		driver: abi.RDMA_DRIVER_RXE, protocol: "roce", ports: []string{netdev},
	}
}

// nodes is a /dev: the answer of Stat for each path, an error or a Dev. It
// cannot be opened.
type nodes map[string]any

var _ uapi.Opener = nodes(nil)

func (n nodes) Stat(path string) (uint64, error) {
	switch found := n[path].(type) {
	case Dev:
		return uint64(found), nil
	case error:
		return 0, &fs.PathError{Op: "stat", Path: path, Err: found}
	}
	return 0, &fs.PathError{Op: "stat", Path: path, Err: syscall.ENOENT}
}

func (n nodes) Open(path string) (uapi.File, error) {
	return nil, errors.New("discovery opened " + path)
}

func (n nodes) AdoptBlocking(fd int32) (uapi.File, error) { return n.Adopt(fd) }

func (n nodes) Adopt(int32) (uapi.File, error) {
	return nil, errors.New("discovery adopted a descriptor")
}

// tree writes files below a new directory and returns it. A name that ends in a
// slash is an empty directory, a value without a newline is written as it is.
func tree(t testing.TB, files map[string]string) string {
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		dir := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			dir = path
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// refusing is a System whose netlink fails when it is opened.
func refusing(t testing.TB, err error, nodes nodes, files map[string]string) *System {
	return &System{
		Root: tree(t, files), Opener: nodes,
		Netlink: func() (Transport, error) { return nil, os.NewSyscallError("socket", err) },
	}
}

// mustError checks kind and words of an error.
func mustError(t *testing.T, err error, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("got error %v, want one that is %v", err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got error %q, want it to say %q", err, w)
		}
	}
}
