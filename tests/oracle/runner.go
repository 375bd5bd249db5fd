package oracle

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// Runner carries scenarios out by package uverbs.
type Runner struct {
	Device *uverbs.Device
	Arena  []byte
	Mark   func(text string) error // says something in the trace
	Bells  int                     // a userfaultfd, for the supervisor to hear doorbells; 0: none

	ctx   *uverbs.Context
	pds   []*uverbs.PD
	mrs   []*region
	chans []*uverbs.CompChannel
	cqs   []*uverbs.CQ
	srqs  []*uverbs.SRQ
	qps   []*uverbs.QP
	ahs   []*uverbs.AH
	mws   []*uverbs.MW
	sends [][]uverbs.SendWR // by queue pair, to be posted
	recvs [][]uverbs.RecvWR // by queue pair
	srqRs [][]uverbs.RecvWR // by shared queue
	made  []made
	wcs   [maxPoll]uverbs.WC
}

// made is an object with its name, to be closed at the end.
type made struct {
	name   string
	object io.Closer
}

// region is a memory region of the arena.
type region struct {
	*uverbs.MR
	off int
}

// Run carries out all scenarios of a text.
func (r *Runner) Run(text io.Reader) error {
	lines := bufio.NewScanner(text)
	for n := 1; lines.Scan(); n++ {
		if line := strings.TrimSpace(lines.Text()); line != "" && line[0] != '#' {
			if err := r.step(parseStep(line)); err != nil {
				return fmt.Errorf("line %d, %q: %w", n, line, err)
			}
		}
	}
	return lines.Err()
}

// step carries one step out and says what came of it.
func (r *Runner) step(s Step) error {
	switch s.Verb {
	case "scenario":
		return r.begin(&s)
	case "send":
		return r.addSend(&s)
	case "recv":
		return r.addRecv(r.recvs, &s)
	case "srecv":
		return r.addRecv(r.srqRs, &s)
	case "run", "cqe":
		return r.Mark(s.Line)
	}
	do := verbs[s.Verb]
	if do == nil {
		return errors.New("no such step")
	}
	return r.Mark(s.Verb + " " + s.arg(0) + ": " + do(r, &s))
}

// verbs are the steps that have a result.
var verbs = map[string]func(*Runner, *Step) string{
	"pd": (*Runner).pd, "mr": (*Runner).mr, "rereg": (*Runner).rereg, "ch": (*Runner).channel, "cq": (*Runner).cq,
	"resize": (*Runner).resize, "srq": (*Runner).srq, "qp": (*Runner).qp, "modify": (*Runner).modify,
	"ah": (*Runner).ah, "mw": (*Runner).mw, "post": (*Runner).post, "rpost": (*Runner).recvPost,
	"spost": (*Runner).srqPost, "bind": (*Runner).bind, "poll": (*Runner).poll, "arm": (*Runner).arm,
	"event": (*Runner).event, "query": (*Runner).query, "limit": (*Runner).limit, "squery": (*Runner).querySRQ,
	"close": (*Runner).close, "end": (*Runner).end,
}

// begin opens the device for a scenario.
func (r *Runner) begin(s *Step) (err error) {
	*r = Runner{Device: r.Device, Arena: r.Arena, Mark: r.Mark, Bells: r.Bells}
	fill(r.Arena)
	if err = r.Mark(s.Line); err != nil {
		return err
	}
	if r.ctx, err = r.Device.Open(); err != nil {
		return err
	}
	if r.Bells > 0 {
		if err = r.Mark(fmt.Sprint("bells ", r.Bells)); err != nil {
			return err
		}
	}
	return r.Mark("open")
}

// end closes what is open.
func (r *Runner) end(*Step) string {
	var errs []error
	for i := len(r.made) - 1; i >= 0; i-- {
		errs = append(errs, r.made[i].object.Close())
	}
	return verdict(errors.Join(append(errs, r.ctx.Close())...))
}

// verdict: the two libraries refuse with errors of their own.
func verdict(err error) string {
	if err != nil {
		return "refused"
	}
	return "ok"
}

func (r *Runner) close(s *Step) string {
	for i, m := range r.made {
		if m.name == s.arg(0) {
			r.made = append(r.made[:i], r.made[i+1:]...)
			return verdict(m.object.Close())
		}
	}
	return "absent"
}

func (r *Runner) arm(s *Step) string { return verdict(at(r.cqs, s.arg(0)).Arm(s.has("se"))) }

// eventTime is for an event that is there already, if there is one.
const eventTime = 20 * time.Millisecond

func (r *Runner) event(s *Step) string {
	ctx, cancel := context.WithTimeout(context.Background(), eventTime)
	defer cancel()
	q, err := at(r.chans, s.arg(0)).NextEvent(ctx)
	if err != nil {
		return "none"
	}
	for i := range r.cqs {
		if r.cqs[i] == q {
			return fmt.Sprint("c", i)
		}
	}
	return "stranger"
}
