package rdmacm

import (
	"errors"
	"sync"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/uverbs"
)

// noIndex says that the kernel did not tell the device's index. Kernels that do never reach
// it.
const noIndex = 1<<32 - 1

// deviceKey is how the kernel names the device of an id.
type deviceKey struct {
	guid  uint64 // in host order
	index uint32 // or noIndex
	port  uint8  // 0: the id has no device
}

func (k deviceKey) matches(d *uverbs.Device) bool {
	if k.index != noIndex && d.Index() >= 0 && uint32(d.Index()) != k.index {
		return false
	}
	return d.NodeGUID() == k.guid
}

// devices are those that the ids of a channel use. A device is open only while an id needs
// it: an open one keeps the administrator from deleting it.
type devices struct {
	sys *discover.System

	mu    sync.Mutex
	known []*uverbs.Device
	open  []*openDevice
}

// openDevice is a device that ids share.
type openDevice struct {
	from *devices
	dev  *uverbs.Device
	ctx  *uverbs.Context
	refs int
}

// list reads the kernel's list of devices.
func (d *devices) list() ([]*uverbs.Device, error) {
	return uverbs.Devices(uverbs.WithSystem(d.sys))
}

// find returns the device of that key. One that was plugged in after the last look at the
// list is found by another look.
func (d *devices) find(key deviceKey) (*uverbs.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.findLocked(key)
}

func (d *devices) findLocked(key deviceKey) (*uverbs.Device, error) {
	if key.port == 0 {
		return nil, invalidError("the id has no device yet: it gets one by ResolveAddr, by a connection request, " +
			"or by Bind to the address of an interface")
	}
	for range 2 {
		for _, dev := range d.known {
			if key.matches(dev) {
				return dev, nil
			}
		}
		var err error
		if d.known, err = d.list(); err != nil {
			return nil, err
		}
	}
	for _, dev := range d.known {
		if key.matches(dev) {
			return dev, nil
		}
	}
	return nil, ErrDeviceRemoved
}

// acquire opens the device, or shares it with others.
func (d *devices) acquire(key deviceKey) (*openDevice, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.open {
		if key.port != 0 && key.matches(o.dev) {
			o.refs++
			return o, nil
		}
	}
	dev, err := d.findLocked(key)
	if err != nil {
		return nil, err
	}
	ctx, err := dev.Open()
	if err != nil {
		return nil, err
	}
	o := &openDevice{from: d, dev: dev, ctx: ctx, refs: 1}
	d.open = append(d.open, o)
	return o, nil
}

// release gives up one share. Devices that nobody shares are closed, unless objects of the
// program are left on them: those are closed by a later release, at the latest by close.
func (o *openDevice) release() {
	if o == nil {
		return
	}
	d := o.from
	d.mu.Lock()
	defer d.mu.Unlock()
	o.refs--
	d.closeIdle() // tried again by close, which reports it
}

func (d *devices) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closeIdle()
}

func (d *devices) closeIdle() error {
	var errs []error
	used := d.open[:0]
	for _, o := range d.open {
		err := error(nil)
		if o.refs == 0 {
			err = o.ctx.Close()
		}
		if o.refs > 0 || errors.Is(err, ErrBusy) {
			used = append(used, o)
		}
		errs = append(errs, err)
	}
	clear(d.open[len(used):])
	d.open = used
	return errors.Join(errs...)
}

// Context returns the open device of the id. It is opened on first use, shared by all ids of
// the channel on that device (one that migrates keeps what it has), and closed with the last
// of them: what the program makes on it must be closed before, or the context stays open
// until [EventChannel.Close] finds it free.
// It is not for the program to close.
//
// The id has a device after EventAddrResolved, after EventConnectRequest, and after Bind to
// an address that is not the unspecified one. Errors: the one of [uverbs.Device.Usable],
// which names the missing node.
func (id *ID) Context() (*uverbs.Context, error) {
	var ctx *uverbs.Context
	err := id.do(opDevice, noAddr, func() (err error) {
		ctx, err = id.context()
		return err
	})
	return ctx, err
}

func (id *ID) context() (*uverbs.Context, error) {
	if id.opened == nil {
		o, err := id.ch.devs.acquire(id.dev)
		if err != nil {
			return nil, err
		}
		id.opened = o
	}
	return id.opened.ctx, nil
}

// Device returns the device of the id without opening it. Errors: ErrInvalid while the id has
// none, see [ID.Context].
func (id *ID) Device() (*uverbs.Device, error) {
	var dev *uverbs.Device
	err := id.do(opDevice, noAddr, func() (err error) {
		dev, err = id.ch.devs.find(id.dev)
		return err
	})
	return dev, err
}
