package discover

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"

	"github.com/pureverbs/rdma/abi"
)

// maxDumps bounds how often a dump is begun anew because the list changed while
// it was being read.
const maxDumps = 16

// encode fills in the attributes of a request; nil for none.
type encode func(*netlink.AttributeEncoder)

// refused tells whether an error means that RDMA netlink is not to be had here
// (kernel without RDMA, seccomp, gVisor), so that sysfs is worth a try. All
// other errors are real and must not be hidden by a second way.
func refused(err error) bool {
	for _, errno := range []syscall.Errno{
		syscall.EPROTONOSUPPORT, syscall.EAFNOSUPPORT, syscall.EPERM, syscall.EACCES,
		syscall.ENOSYS, syscall.EOPNOTSUPP,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// message builds a request. RDMA netlink has no header of its own: attributes
// follow the netlink header.
func message(op uint16, flags netlink.HeaderFlags, fill encode) (netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	if fill != nil {
		fill(ae)
	}
	data, err := ae.Encode()
	if err != nil {
		return netlink.Message{}, fmt.Errorf("encode attributes: %w", err)
	}
	return netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(abi.RDMA_NL_GET_TYPE(abi.RDMA_NL_NLDEV, op)),
			Flags: netlink.Request | flags,
		},
		Data: data,
	}, nil
}

// dump asks for all objects of a kind and returns the payload of each. A dump
// that the kernel marks as interrupted by a change is begun again.
func dump(t Transport, op uint16, fill encode) ([][]byte, error) {
	req, err := message(op, netlink.Dump, fill)
	if err != nil {
		return nil, err
	}
	for range maxDumps {
		replies, err := t.Execute(req)
		if err != nil {
			return nil, err
		}
		payloads, whole, err := unpack(req, replies)
		if err != nil || whole {
			return payloads, err
		}
	}
	return nil, fmt.Errorf("the list changed during each of %d readings", maxDumps)
}

// unpack checks the type of each answer and takes its payload; whole is false if
// the dump was interrupted.
func unpack(req netlink.Message, replies []netlink.Message) (payloads [][]byte, whole bool, err error) {
	whole = true
	for _, m := range replies {
		if m.Header.Type != req.Header.Type {
			return nil, false, fmt.Errorf("answer is of message type %#x, want %#x", uint16(m.Header.Type), uint16(req.Header.Type))
		}
		if m.Header.Flags&netlink.DumpInterrupted != 0 {
			whole = false
		}
		payloads = append(payloads, m.Data)
	}
	return payloads, whole, nil
}

// ask asks for one object and returns its payload.
func ask(t Transport, op uint16, fill encode) ([]byte, error) {
	req, err := message(op, 0, fill)
	if err != nil {
		return nil, err
	}
	replies, err := t.Execute(req)
	if err != nil {
		return nil, err
	}
	payloads, _, err := unpack(req, replies)
	if err != nil {
		return nil, err
	}
	if len(payloads) != 1 {
		return nil, fmt.Errorf("answer has %d messages, want 1", len(payloads))
	}
	return payloads[0], nil
}

// command asks for a change and waits for the kernel's acknowledgement.
func command(t Transport, op uint16, fill encode) error {
	req, err := message(op, netlink.Acknowledge, fill)
	if err != nil {
		return err
	}
	_, err = t.Execute(req)
	return err
}
