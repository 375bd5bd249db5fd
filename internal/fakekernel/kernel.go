//go:build linux

package fakekernel

import (
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pureverbs/rdma/internal/discover"
)

// Options chooses the devices and how they behave. The zero value is one rxe device that
// behaves well.
type Options struct {
	// Devices are the RDMA devices; nil stands for one default device. An empty list
	// that is not nil is a system without devices.
	Devices []Device

	// Root is an empty directory that gets the sysfs and procfs files of the devices.
	// Without it there is neither.
	Root string

	NoCM      bool // the module rdma_ucm is not there
	NoCMNode  bool // the node rdma_cm is not there
	DenyWrite bool // write() on uverbs fails with EACCES, as after a change of credentials

	// Kernel is the version of Linux whose abilities, limits and errnos the fake has, as
	// "5.10", "6.12" or "7.2". Empty stands for "6.1". What New cannot read makes it panic.
	Kernel string

	// Deferred moves the execution of work requests from the doorbell to a goroutine of
	// its own, as kernels from 6.4 on do.
	Deferred bool
	// AckDelay holds completions of sends back, so that an answer's receive completion
	// comes first.
	AckDelay time.Duration
	// AckFirst turns round the order of the two completions of one message: first that
	// of the send, then that of the receive.
	AckFirst bool

	// MaxRetry bounds the pause between two tries when a peer does not answer; the queue
	// pair's own timeout is used where it is shorter. Zero stands for 10 ms.
	MaxRetry time.Duration
	// CMTimeout is how long the connection manager waits for an answer before it gives
	// up. Zero stands for 50 ms.
	CMTimeout time.Duration
	// TimeWait is the time from the end of a connection to TIMEWAIT_EXIT. Zero stands
	// for 5 ms.
	TimeWait time.Duration
	// Silent are addresses of hosts that exist but never answer the connection manager.
	Silent []netip.Addr

	// LaxMPA lets the passive side of an iWARP connection send before it has heard from the
	// active one. With siw that is a race, which the connection may lose; the fake has it
	// lost always.
	LaxMPA bool

	// Memlock bounds the bytes registered at once; zero is no limit.
	Memlock uint64

	// Log, if not nil, sees every call before it is carried out, without a lock and from
	// the goroutine of the call: as long as it does not return, the kernel is slow.
	Log func(Call)

	// Trace, if not nil, gets what programs do to mlx5 devices: see [Kernel.Mark]. It is
	// deterministic if the devices do not listen ([MLX5.NoExec]) and one goroutine does it
	// all.
	Trace io.Writer

	// Spoil, if not nil, may change a new queue before the user maps it.
	Spoil func(queue []byte)
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// Kernel is a fake kernel. One lock covers all of it: calls are short, and none waits
// while it holds the lock.
type Kernel struct {
	opts    Options
	version version

	faultMu sync.Mutex
	faults  []*fault
	faulty  atomic.Int32 // number of faults, so that the common case takes no lock

	mu      sync.Mutex
	devices []*device
	files   map[file]struct{} // all that are open
	fds     map[int32]file    // handed out in a response, adopted or not
	cm      connManager
	nic     nic
	timers  []timer
	maps    int // mappings that users hold
	pinned  uint64
	closed  bool
	cut     bool

	born    time.Time
	uars    []*mlx5UAR // registers that are watched
	watcher watcher
	tracer  *tracer // nil: nobody wants to know

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

// New starts a fake kernel. The caller closes it.
func New(opts Options) *Kernel {
	set(&opts.Kernel, "6.1")
	opts.MaxRetry = orDefault(opts.MaxRetry, 10*time.Millisecond)
	opts.CMTimeout = orDefault(opts.CMTimeout, 50*time.Millisecond)
	opts.TimeWait = orDefault(opts.TimeWait, 5*time.Millisecond)
	if err := copyIn(make([]byte, 1), uint64(addrOf([]byte{1}))); err != nil {
		panic("fakekernel: process_vm_readv on the own process is refused: is there a seccomp filter?")
	}
	k := &Kernel{
		opts: opts, version: parseVersion(opts.Kernel),
		born:  time.Now(),
		files: make(map[file]struct{}),
		fds:   make(map[int32]file),
		wake:  make(chan struct{}, 1),
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	k.cm.init()
	k.nic.init()
	k.watcher.init()
	k.tracer = newTracer(k, opts.Trace)
	k.addDevices()
	if opts.Root != "" {
		writeTree(&opts, k.devices)
	}
	go k.work()
	k.startWatcher()
	return k
}

// System is this kernel as discover and the packages above it see it.
func (k *Kernel) System() *discover.System {
	root := k.opts.Root
	if root == "" {
		root = "/nonexistent"
	}
	return &discover.System{
		Root: root, Opener: opener{k},
		Netlink: func() (discover.Transport, error) { return transport{k}, nil },
		Network: network{k},
	}
}

// Close ends the kernel's goroutine and closes all files that are still open.
func (k *Kernel) Close() {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	k.closed = true
	k.timers = nil
	open := make([]file, 0, len(k.files))
	for f := range k.files {
		if e, ok := f.(*eventFile); ok { // at once: those that outlive their context say EIO
			e.drop()
			continue
		}
		open = append(open, f)
	}
	k.mu.Unlock()
	for _, f := range open {
		f.Close()
	}
	close(k.stop)
	<-k.done
	k.watcher.running.Wait()
	k.tracer.close()
}

// Cut cuts all connections, or mends them: between queue pairs and between the ids of
// rdma_cm nothing arrives, as if the cable was out.
func (k *Kernel) Cut(cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = cut
}

// Counts is how many objects of each kind the kernel holds.
type Counts struct {
	Contexts, PDs, MRs, CQs, QPs int
	SRQs, AHs, MWs               int
	Attached                     int // queue pairs to multicast groups
	CompChannels, AsyncChannels  int
	CMFiles, CMIDs               int
	Maps                         int // queues that are mapped
}

// Counts counts what is alive; the zero value is a kernel that holds nothing.
func (k *Kernel) Counts() Counts {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := Counts{CMIDs: len(k.cm.ids), Maps: k.maps}
	for f := range k.files {
		switch f := f.(type) {
		case *verbsFile:
			f.count(&c)
		case *eventFile:
			if f.completion {
				c.CompChannels++
			} else {
				c.AsyncChannels++
			}
		case *cmFile:
			c.CMFiles++
		}
	}
	return c
}
