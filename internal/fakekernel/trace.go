//go:build linux

package fakekernel

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// tracer writes what programs do to mlx5 devices, one line for each thing that they did, so
// that two programs that do the same write the same: see [Options.Trace].
//
// Commands are written as they come. What is only memory (requests in rings, doorbell
// records, registers) is looked at when the program says so, by a mark. So the trace does
// not depend on when anybody looked.
type tracer struct {
	k     *Kernel
	out   io.Writer
	err   error
	names map[object]string
	made  map[string]int // of each kind, in this scenario
	views map[object]dumper
	pages map[*mlx5UAR]*registerView
	files []*verbsFile // in the order in which they were first heard of
	bells *bells       // nil: nobody hears doorbells

	mu   sync.Mutex // the text
	text strings.Builder
}

func newTracer(k *Kernel, w io.Writer) *tracer {
	if w == nil {
		return nil
	}
	t := &tracer{k: k, out: w}
	t.reset()
	return t
}

// reset begins a scenario: objects are counted from 0 again.
func (t *tracer) reset() {
	t.names, t.made = make(map[object]string), make(map[string]int)
	t.views, t.pages = make(map[object]dumper), make(map[*mlx5UAR]*registerView)
	t.bells.forget()
}

func (t *tracer) close() {
	if t != nil {
		t.bells.close()
	}
}

// put writes one line.
func (t *tracer) put(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(&t.text, format+"\n", args...)
}

// flush hands the text on.
func (t *tracer) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		_, t.err = io.WriteString(t.out, t.text.String())
	}
	t.text.Reset()
}

// Mark is how a program under trace says where it is: it opens /dev/infiniband/mark/TEXT,
// which always fails, with ENOENT if the mark was taken. The trace gets the text, and what
// the program has written to memory since the last mark.
//
// A text may also have the device do something, after that:
//
//	scenario NAME      numbers begin anew; nothing is open
//	run                carry out all that was posted
//	cqe CQ QP KIND ... write a completion: see [tracer.inject]
//	bells FD           hear each doorbell, by the program's userfaultfd: see [bells]
//
// Any other errno says that the text is wrong.
func (k *Kernel) Mark(text string) error {
	t := k.tracer
	if t == nil {
		return unix.ENXIO
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	defer t.flush()
	if t.err != nil {
		return unix.EIO
	}
	if name, ok := strings.CutPrefix(text, "scenario "); ok {
		t.put("== %s", name)
		return t.begin()
	}
	if fd, ok := strings.CutPrefix(text, "bells "); ok {
		n, _ := strconv.Atoi(fd)
		if err := t.hearBells(n); err != nil {
			return err
		}
		return unix.ENOENT
	}
	t.put("# %s", text)
	t.dump()
	return t.obey(text)
}

// obey does what a mark asks for.
func (t *tracer) obey(text string) error {
	words := strings.Fields(text)
	switch {
	case len(words) == 0:
		return unix.EINVAL
	case words[0] == "run":
		t.run()
	case words[0] == "cqe":
		if err := t.inject(words[1:]); err != nil {
			t.put("! %v", err)
			return unix.EINVAL
		}
	}
	return unix.ENOENT
}

// begin starts a scenario. The device numbers what it makes as if it was new.
func (t *tracer) begin() error {
	t.reset()
	if !t.allClosed() {
		t.put("! a file is open")
		return unix.EBUSY
	}
	for _, d := range t.k.devices {
		d.lastQPN, d.lastKey, d.lastSRQN, d.lastMW, d.lastAH = 16, 0, 0, 0, 0
		d.hw.init(&d.Device)
	}
	return unix.ENOENT
}

// allClosed waits for files of other processes to be closed: a front end may hear of it late.
func (t *tracer) allClosed() bool {
	for end := time.Now().Add(closeTime); ; {
		t.files = slices.DeleteFunc(t.files, func(f *verbsFile) bool { return f.closed })
		if len(t.files) == 0 || t.files[0].mem == 0 || time.Now().After(end) {
			return len(t.files) == 0
		}
		t.k.mu.Unlock()
		time.Sleep(closePause)
		t.k.mu.Lock()
	}
}

// How long it is waited for a file to be closed, and how often it is looked.
const (
	closeTime  = 5 * time.Second
	closePause = 20 * time.Microsecond
)

// meet notes a file.
func (t *tracer) meet(f *verbsFile) {
	if !slices.Contains(t.files, f) {
		t.files = append(t.files, f)
	}
}

// prefix is what names of objects begin with, as in scenarios; "" for those that need none.
func prefix(o object) string {
	switch o.kind() {
	case abi.UVERBS_OBJECT_QP:
		return "q"
	case abi.UVERBS_OBJECT_CQ:
		return "c"
	case abi.UVERBS_OBJECT_SRQ:
		return "s"
	case abi.UVERBS_OBJECT_MR:
		return "m"
	}
	return ""
}

// name gives new objects of a file their names: the kind and a number in the order in which
// they were made.
func (t *tracer) name(f *verbsFile) {
	for _, h := range handles(f) {
		o := f.objects[h]
		if _, ok := t.names[o]; ok {
			continue
		}
		if p := prefix(o); p != "" {
			t.names[o] = fmt.Sprint(p, t.made[p])
			t.made[p]++
		}
	}
}

// handles are those of a file, in order.
func handles(f *verbsFile) []uint32 {
	all := make([]uint32, 0, len(f.objects))
	for h := range f.objects {
		all = append(all, h)
	}
	slices.Sort(all)
	return all
}

// find returns the object of a name.
func find[T object](t *tracer, name string) (found T, err error) {
	for o, n := range t.names {
		if x, ok := o.(T); ok && n == name {
			return x, nil
		}
	}
	return found, fmt.Errorf("there is no %s", name)
}
