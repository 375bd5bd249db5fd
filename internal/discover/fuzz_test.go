package discover

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"

	"github.com/pureverbs/rdma/abi"
)

// scriptedNL answers requests with what the fuzzer says, whatever is asked. A script is a
// sequence of answers. The first byte of one is the number of messages, or with the high
// bit an errno; of a message the first byte says what is odd about it, two have its
// length. When the script is used up, answers are empty.
type scriptedNL struct {
	script   []byte
	requests int
	open     int
}

// What is odd about a message.
const (
	oddType  = 1 << iota // is not of the type that was asked for
	oddCut               // belongs to a dump that was interrupted
	oddMulti             // is marked as one of several
)

const maxMessages = 8

// EINVAL and EPERM as Linux has them; a script has no room for what Windows makes of them.
const (
	errnoInvalid = 22
	errnoPerm    = 1
)

func (s *scriptedNL) Close() error {
	s.open--
	return nil
}

func (s *scriptedNL) take(n int) []byte {
	n = min(n, len(s.script))
	b := s.script[:n]
	s.script = s.script[n:]
	return b
}

func (s *scriptedNL) byte() byte {
	if b := s.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (s *scriptedNL) Execute(m netlink.Message) (replies []netlink.Message, err error) {
	s.requests++
	n := s.byte()
	if n&0x80 != 0 {
		return nil, &netlink.OpError{Op: "receive", Err: syscall.Errno(n & 0x7f)}
	}
	for range min(n, maxMessages) {
		odd := s.byte()
		r := netlink.Message{Header: netlink.Header{Type: m.Header.Type}}
		if odd&oddType != 0 {
			r.Header.Type = netlink.Error
		}
		if odd&oddCut != 0 {
			r.Header.Flags |= netlink.DumpInterrupted
		}
		if odd&oddMulti != 0 {
			r.Header.Flags |= netlink.Multi
		}
		r.Data = s.take(int(s.byte()) | int(s.byte())<<8)
		replies = append(replies, r)
	}
	return replies, nil
}

// answer is one answer of a script.
func answer(odd byte, payloads ...[]byte) []byte {
	b := []byte{byte(len(payloads))}
	for _, p := range payloads {
		b = append(b, odd, byte(len(p)), byte(len(p)>>8))
		b = append(b, p...)
	}
	return b
}

func scriptOf(answers ...[]byte) (all []byte) {
	for _, a := range answers {
		all = append(all, a...)
	}
	return all
}

// FuzzNetlink gives whole conversations: any answers to any of the requests that listing the
// devices takes. The list has only devices that are fit for use, or why they are not, and
// the number of requests is bounded by the number of devices.
func FuzzNetlink(f *testing.F) {
	d0, d1 := rxe(0, "rxe0", "eth0"), rxe(1, "rxe1", "")
	cm := fakeDev{chardev: "rdma_cm", dev: MakeDev(10, 126)}
	many := encoded(f, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 7)
		ae.String(abi.RDMA_NLDEV_ATTR_DEV_NAME, "rxe0")
		ae.Uint32(abi.RDMA_NLDEV_ATTR_PORT_INDEX, 1<<31-1)
		ae.String(abi.RDMA_NLDEV_ATTR_DEV_PROTOCOL, "roce")
	})
	f.Add(scriptOf(answer(oddMulti, d0.get(f), d1.get(f)), answer(0, d0.charDev(f)), answer(0, d0.portGet(f)...),
		answer(0, d1.charDev(f)), answer(0, d1.portGet(f)...)))
	f.Add(scriptOf(answer(0, d0.get(f), d0.get(f)), answer(0, cm.charDev(f)), answer(0)))
	f.Add(scriptOf(answer(oddCut, d0.get(f)), answer(0, d1.get(f)), []byte{0x80 | errnoInvalid}, []byte{0x80 | errnoInvalid}))
	f.Add(scriptOf(answer(0, many), answer(0, d0.charDev(f)), answer(0)))
	f.Add(scriptOf(answer(oddType, d0.get(f)), answer(0)))
	f.Add(answer(0, cm.charDev(f)))
	f.Add(answer(0, encoded(f, func(ae *netlink.AttributeEncoder) { ae.Uint8(abi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 1) })))
	f.Add([]byte{0x80 | errnoPerm})
	f.Add(bytes.Repeat(answer(oddCut, d0.get(f)), 20*maxDumps))
	root := tree(f, sysfsFiles("rxe0", "uverbs0", "231:192"))
	f.Fuzz(func(t *testing.T, script []byte) {
		var nl *scriptedNL
		nodes := present(2)
		s := &System{Root: root, Opener: nodes, Netlink: func() (Transport, error) {
			nl = &scriptedNL{script: script, open: 1}
			return nl, nil
		}}
		devs, err := s.Devices()
		checkList(t, nodes, devs, err)
		if most := maxDumps + (maxDumps+2)*maxMessages; nl.requests > most {
			t.Errorf("%d requests, want at most %d", nl.requests, most)
		}
		open := nl.open
		cm, err := s.CM()
		open += nl.open
		if err == nil {
			checkNode(t, nodes, &cm)
		}
		checkError(t, err)
		_, err = s.Mode()
		checkError(t, err)
		if open += nl.open; open != 0 {
			t.Errorf("%d sockets stay open", open)
		}
	})
}

// checkError: what fails says what was tried, in an *Error.
func checkError(t *testing.T, err error) {
	t.Helper()
	if e := (*Error)(nil); err != nil && (!errors.As(err, &e) || e.Op == "" || err.Error() == "") {
		t.Errorf("error %#v does not say what failed", err)
	}
}

// checkList: names can stand in a path, indices are in order, and what is usable has a node
// that is the right one.
func checkList(t *testing.T, nodes nodes, devs []Device, err error) {
	t.Helper()
	checkError(t, err)
	last := -1
	for i := range devs {
		d := &devs[i]
		if validName(d.Name) != nil || d.Ports < 0 || d.Ports > 1<<31-1 {
			t.Errorf("device %+v was accepted", d)
		}
		if d.Index != -1 && d.Index <= last {
			t.Errorf("device %d comes after device %d", d.Index, last)
		}
		last = d.Index
		for _, name := range d.NetDevs {
			if validName(name) != nil {
				t.Errorf("interface %q was accepted", name)
			}
		}
		checkError(t, d.NetReason)
		checkNode(t, nodes, &d.CharDev)
	}
}

func checkNode(t *testing.T, nodes nodes, cd *CharDev) {
	t.Helper()
	if cd.Reason != nil {
		checkError(t, cd.Reason)
		return
	}
	if found, ok := nodes[cd.Node].(Dev); !ok || found != cd.Dev || validName(cd.SysName) != nil {
		t.Errorf("node %+v is called usable; there is %v", cd, nodes[cd.Node])
	}
}

// FuzzSysfs gives the files of one device any contents, each of them: what comes out stands
// in them word for word, or there is an error.
func FuzzSysfs(f *testing.F) {
	const verbs, ib = "sys/class/infiniband_verbs/uverbs0/", "sys/class/infiniband/rxe0/"
	names := [...]string{
		verbs + "ibdev", verbs + "dev", verbs + "abi_version", ib + "node_guid", ib + "node_type", ib + "ports/1/pkeys/0",
		ib + "ports/1/gids/0", ib + "ports/1/gid_attrs/types/0", ib + "ports/1/gid_attrs/ndevs/0", ib + "ports/1/link_layer",
		"proc/thread-self/net/dev", "proc/thread-self/net/if_inet6",
	}
	good := sysfsFiles("rxe0", "uverbs0", "231:192")
	f.Add(uint8(0), []byte(good[names[0]]))
	for i, name := range names {
		f.Add(uint8(i), []byte(good[name]))
		f.Add(uint8(i), []byte{})
	}
	for i, text := range map[uint8]string{
		0: "../../class\n", 1: "231:192\n\n", 2: "99999999999\n", 3: "0:0:0:0\n", 4: "256: X\n", 5: "65536\n",
		6: "fe80::1\n", 7: "IB/RoCE v1\n", 8: "\n", 9: "InfiniBand\n", 10: ":\n::\n", 11: "x x x x x x\n\xff",
	} {
		f.Add(i, []byte(text))
	}
	root, nodes := tree(f, good), present(1)
	for _, dir := range []string{"gids/1", "gids/2"} { // one entry is enough, and quicker
		if err := os.Remove(filepath.Join(root, ib, "ports/1", dir)); err != nil {
			f.Fatal(err)
		}
	}
	s := &System{Root: root, Opener: nodes, Netlink: func() (Transport, error) { return nil, syscall.EPERM }}
	f.Fuzz(func(t *testing.T, which uint8, content []byte) {
		name := names[int(which)%len(names)]
		write := func(b []byte) {
			if err := os.WriteFile(filepath.Join(root, name), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		write(content)
		defer write([]byte(good[name]))
		devs, err := s.Devices()
		checkList(t, nodes, devs, err)
		if len(devs) != 1 {
			t.Fatalf("%d devices, %v", len(devs), err)
		}
		if devs[0].Reason == nil {
			checkWord(t, root, names[1], devs[0].Dev.String())
			checkWord(t, root, names[2], utoa(devs[0].ABI))
			checkWord(t, root, names[3], groups(binary.BigEndian.AppendUint64(nil, devs[0].NodeGUID)))
		}
		checkTables(t, s, root, names[5], names[6])
	})
}

func checkTables(t *testing.T, s *System, root, pkeys, gids string) {
	t.Helper()
	d := &Device{Name: "rxe0"}
	key, err := s.PKey(d, 1, 0)
	checkError(t, err)
	if text, _ := os.ReadFile(filepath.Join(root, pkeys)); err == nil {
		if v, err := strconv.ParseUint(strings.TrimSuffix(string(text), "\n"), 0, 16); err != nil || uint16(v) != key {
			t.Errorf("partition key %#x was read from %q", key, text)
		}
	}
	gid, ok, err := s.GID(d, 1, 0)
	checkError(t, err)
	if ok && err == nil {
		checkWord(t, root, gids, groups(gid.Raw[:]))
	}
}

// groups is the form of GUIDs and GIDs in sysfs.
func groups(b []byte) string {
	var g []string
	for ; len(b) > 0; b = b[2:] {
		g = append(g, fmt.Sprintf("%02x%02x", b[0], b[1]))
	}
	return strings.Join(g, ":")
}

// checkWord compares what was read with what stands there, but for the case of digits and
// zeros before numbers.
func checkWord(t *testing.T, root, name, got string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	plain := func(s string) string {
		parts := strings.Split(strings.ToLower(s), ":")
		for i, p := range parts {
			if parts[i] = strings.TrimLeft(p, "0"); parts[i] == "" {
				parts[i] = "0"
			}
		}
		return strings.Join(parts, ":")
	}
	if want, whole := strings.CutSuffix(string(b), "\n"); !whole || plain(want) != plain(got) {
		t.Errorf("%s: %q was read from %q", name, got, b)
	}
}
