//go:build linux

package verbstest

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) stressTests() []test {
	return []test{{"Stress", u.stress}}
}

// stress lets 16 goroutines do what comes to mind, with objects of all kinds that they
// share, and in between hold conversations whose every byte is checked. RDMA_STRESS_SEED
// repeats a run as far as goroutines repeat, RDMA_STRESS_DURATION makes it longer.
func (u *Suite) stress(t *testing.T) {
	seed, duration := stressSettings(t, u.Short)
	t.Logf("RDMA_STRESS_SEED=%d for %v", seed, duration)
	w := &world{u: u, t: t, kinds: kinds()}
	deadline := time.Now().Add(duration)
	var wg sync.WaitGroup
	for i := range uint64(16) {
		r := rand.New(rand.NewPCG(seed, i))
		wg.Go(func() {
			for time.Now().Before(deadline) && !t.Failed() {
				deed := deeds[r.IntN(len(deeds))]
				w.judge(deed.name, deed.do(w, r))
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Until(deadline) + time.Minute):
		stacks := make([]byte, 1<<20)
		t.Fatalf("a deed does not end:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
	w.closeAll(rand.New(rand.NewPCG(seed, 99)))
	t.Logf("%d deeds, %d refused", w.done.Load(), w.refusals.Load())
	if w.done.Load() == 0 {
		t.Error("nothing was done")
	}
}

func stressSettings(t *testing.T, short bool) (seed uint64, d time.Duration) {
	t.Helper()
	seed, d = rand.Uint64(), 5*time.Second
	if short {
		d = time.Second
	}
	var err error
	if s := os.Getenv("RDMA_STRESS_SEED"); s != "" {
		seed, err = strconv.ParseUint(s, 10, 64)
		testutil.Must(t, err)
	}
	if s := os.Getenv("RDMA_STRESS_DURATION"); s != "" {
		d, err = time.ParseDuration(s)
		testutil.Must(t, err)
	}
	return seed, d
}

// world is what the goroutines share.
type world struct {
	u        *Suite
	t        *testing.T
	kinds    [numKinds]*pool
	done     atomic.Int64
	refusals atomic.Int64
}

// kind is a kind of object.
type kind int

const (
	kindContext kind = iota
	kindPD
	kindChannel
	kindCQ
	kindSRQ
	kindQP
	kindMR
	kindMW
	kindAH
	numKinds
)

// most is how many of a kind live at once.
var most = [numKinds]int{3, 8, 6, 12, 6, 16, 24, 8, 8}

// pool is the objects of one kind.
type pool struct {
	mu  sync.Mutex
	max int
	all []closer
}

func kinds() (k [numKinds]*pool) {
	for i := range k {
		k[i] = &pool{max: most[i]}
	}
	return k
}

func (p *pool) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all) >= p.max
}

func (p *pool) add(c closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, c)
}

// pick returns any of them, nil if there is none.
func (p *pool) pick(r *rand.Rand) closer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) == 0 {
		return nil
	}
	return p.all[r.IntN(len(p.all))]
}

func (p *pool) remove(c closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.all {
		if p.all[i] == c {
			p.all[i] = p.all[len(p.all)-1]
			p.all = p.all[:len(p.all)-1]
			return
		}
	}
}

func (p *pool) snapshot() []closer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]closer(nil), p.all...)
}

// any picks an object of a kind.
func pickAny[T closer](w *world, r *rand.Rand, k kind) (o T, ok bool) {
	c := w.kinds[k].pick(r)
	if c == nil {
		return o, false
	}
	o, ok = c.(T)
	return o, ok
}

// judge fails the test for an error that is no proper answer to a clumsy request: objects
// are closed, in use, full, of another context, not ready for it.
func (w *world) judge(deed string, err error) {
	w.done.Add(1)
	if err == nil {
		return
	}
	w.refusals.Add(1)
	for _, fine := range []error{
		uverbs.ErrBusy, uverbs.ErrQueueFull, uverbs.ErrInvalid, uverbs.ErrNotSupported, net.ErrClosed, errNothing, os.ErrDeadlineExceeded,
		syscall.EINVAL, // a queue pair that is not in the right state
	} {
		if errors.Is(err, fine) {
			return
		}
	}
	w.t.Errorf("%s: %v", deed, err)
}

// errNothing says that there is no object to do it with.
var errNothing = errors.New("nothing there")

// closeAll closes everything, in any order, until all is closed: each round closes at least
// what has no children.
func (w *world) closeAll(r *rand.Rand) {
	for range 20 {
		var all []closer
		for _, p := range w.kinds {
			all = append(all, p.snapshot()...)
		}
		if len(all) == 0 {
			return
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, c := range all {
			switch err := c.Close(); {
			case err == nil:
				for _, p := range w.kinds {
					p.remove(c)
				}
			case !errors.Is(err, uverbs.ErrBusy):
				w.t.Errorf("close %v: %v", c, err)
				return
			}
		}
	}
	w.t.Error("not everything could be closed")
}
