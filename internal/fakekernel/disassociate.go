//go:build linux

package fakekernel

import "github.com/pureverbs/rdma/internal/uapi"

// Disassociate takes a device away as drivers of hardware do while it is open: like
// [Kernel.Unplug], and the queues that users have mapped become zero pages. Every command
// fails with EIO but those that destroy an object: these succeed, in any order.
//
// Real rxe cannot do this. It reports whether there was such a device.
func (k *Kernel) Disassociate(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices {
		if d.Name == name && !d.dead {
			d.zapped = true
			k.unplug(d)
			k.zap(d)
			return true
		}
	}
	return false
}

// zap ends what the contexts have on the device.
func (k *Kernel) zap(d *device) {
	for _, q := range d.qps {
		q.gone = true
	}
	for f := range k.files {
		v, ok := f.(*verbsFile)
		if !ok || v.dev != d {
			continue
		}
		for _, m := range v.mapped {
			zeroPages(m.user)
		}
		for e := range v.events(true) {
			e.queue = nil
		}
	}
}

// destroys tells whether a method ends an object.
func destroys(m *uapi.Method) bool {
	for i := range m.Attrs {
		if m.Attrs[i].Class == uapi.Destroy {
			return true
		}
	}
	return false
}
