package discover

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/pureverbs/rdma/abi"
)

// The tables below are what a program reads for want of an ioctl: partition keys
// have none for unprivileged use, and the GID ioctls came with Linux 5.10.
// Every read is fresh, as the subnet manager and the network change the tables.
// The present name of the device is looked up each time, so that a rename does
// no harm.

// GID is an entry of a port's GID table.
type GID struct {
	Raw    [16]byte
	Type   uint32 // abi.IB_UVERBS_GID_TYPE_IB, _ROCE_V1, _ROCE_V2
	NetDev string // network interface that the GID belongs to, maybe of another namespace; "" if none
}

// PKeyCount returns the length of the partition key table of a port, which counts
// from 1.
func (s *System) PKeyCount(d *Device, port int) (int, error) {
	n, err := countEntries(filepath.Join(s.port(d, port), "pkeys"))
	return n, portError("count partition keys of", d, port, err)
}

// PKey returns the partition key at index, in host order; bit 15 says full
// member. The source is ports/N/pkeys of the device in sysfs.
func (s *System) PKey(d *Device, port, index int) (uint16, error) {
	v, err := readUint(filepath.Join(s.port(d, port), "pkeys", strconv.Itoa(index)), 0, 16)
	return uint16(v), portError("read partition key "+strconv.Itoa(index)+" of", d, port, err)
}

// GIDCount returns the length of the GID table of a port, used entries or not.
func (s *System) GIDCount(d *Device, port int) (int, error) {
	n, err := countEntries(filepath.Join(s.port(d, port), "gids"))
	return n, portError("count GIDs of", d, port, err)
}

// GID returns the entry at index. ok is false if the entry is not in use. The
// source is ports/N/gids and ports/N/gid_attrs of the device in sysfs.
func (s *System) GID(d *Device, port, index int) (gid GID, ok bool, err error) {
	op := "read GID " + strconv.Itoa(index) + " of"
	gid.Raw, err = s.gid(d, port, index)
	if err != nil || gid.Raw == [16]byte{} {
		return GID{}, false, portError(op, d, port, err)
	}
	gid.Type, err = s.gidType(d, port, index)
	if errors.Is(err, syscall.EINVAL) {
		return GID{}, false, nil // taken out between the two reads
	}
	if err != nil {
		return GID{}, false, portError(op, d, port, err)
	}
	gid.NetDev, err = readValue(filepath.Join(s.port(d, port), "gid_attrs/ndevs", strconv.Itoa(index)))
	if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		return GID{}, false, portError(op, d, port, err)
	}
	return gid, true, nil
}

func (s *System) gid(d *Device, port, index int) ([16]byte, error) {
	text, err := readValue(filepath.Join(s.port(d, port), "gids", strconv.Itoa(index)))
	if err != nil {
		return [16]byte{}, err
	}
	return parseGID(text)
}

// gidType reads the type. The kernel has one word for two of them, which the link
// layer tells apart. A driver without types (iWARP, InfiniBand) has no file.
func (s *System) gidType(d *Device, port, index int) (uint32, error) {
	dir := s.port(d, port)
	text, err := readValue(filepath.Join(dir, "gid_attrs/types", strconv.Itoa(index)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return abi.IB_UVERBS_GID_TYPE_IB, nil
	case err != nil:
		return 0, err
	case text == "RoCE v2":
		return abi.IB_UVERBS_GID_TYPE_ROCE_V2, nil
	case text != "IB/RoCE v1":
		return 0, fmt.Errorf("GID type %q is not known", text)
	}
	if layer, err := readValue(filepath.Join(dir, "link_layer")); err != nil || layer != "Ethernet" {
		return abi.IB_UVERBS_GID_TYPE_IB, err
	}
	return abi.IB_UVERBS_GID_TYPE_ROCE_V1, nil
}

// portError names the port; nil stays nil.
func portError(op string, d *Device, port int, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Object: fmt.Sprintf("device %s port %d", d.Name, port), Err: err}
}
