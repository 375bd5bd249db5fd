// Package wire is how the lab on the host and the init of the guest talk: frames
// on one virtio serial port. One ordered stream carries output, status and
// signals, so that a status can never overtake the output before it.
package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// PortName names the virtio serial port.
const PortName = "pureverbs.lab"

// MaxPayload bounds a frame: longer output is cut into several.
const MaxPayload = 64 << 10

// Kind says what a frame carries.
type Kind byte

const (
	// Host to guest.
	Start    Kind = 'S' // Job as JSON
	Stdin    Kind = 'i' // bytes for the job; the next one only after StdinAck
	StdinEOF Kind = 'e'
	Signal   Kind = 's' // one byte: signal number, for the job's process group
	Resize   Kind = 'r' // Size as JSON
	Abort    Kind = 'a' // time is up: ask for stacks (SIGQUIT), then kill
	PowerOff Kind = 'p'

	// Guest to host.
	Hello    Kind = 'H' // Greeting as JSON: the guest is up
	Stdout   Kind = 'o'
	Stderr   Kind = 'E'
	StdinAck Kind = 'k'
	Exit     Kind = 'x' // Status as JSON
)

// Job is a command to run in the guest.
type Job struct {
	Argv []string
	Env  []string // added to the guest's own
	Dir  string
	TTY  bool // run it on a terminal of the given Size
	Size Size
}

// Size of a terminal in characters.
type Size struct{ Rows, Cols uint16 }

// Greeting tells what came up.
type Greeting struct {
	Release string   // of the kernel
	Devices []string // RDMA devices, in the order made
	Err     string   // why the guest is not as asked for, if so
}

// Status is how a job ended.
type Status struct {
	Code    int     // its exit status, or 128 + the signal that ended it
	Seconds float64 // by the guest's clock
	Note    string  // what else went wrong, such as processes that could not be killed
}

// Conn sends and receives frames. Send may be called by any number of
// goroutines, Recv by one.
type Conn struct {
	r  *bufio.Reader
	mu sync.Mutex
	w  io.Writer
}

// NewConn makes a Conn of the two directions of a port.
func NewConn(r io.Reader, w io.Writer) *Conn {
	return &Conn{r: bufio.NewReaderSize(r, MaxPayload), w: w}
}

const headerLen = 5 // kind, length

// Send writes one frame.
func (c *Conn) Send(k Kind, payload []byte) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("send frame %q: %d bytes are too many", k, len(payload))
	}
	b := make([]byte, headerLen, headerLen+len(payload))
	b[0] = byte(k)
	binary.BigEndian.PutUint32(b[1:], uint32(len(payload)))
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.w.Write(append(b, payload...))
	return err
}

// SendJSON writes one frame with v in it.
func (c *Conn) SendJSON(k Kind, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.Send(k, b)
}

// Recv waits for a frame.
func (c *Conn) Recv() (Kind, []byte, error) {
	var h [headerLen]byte
	if _, err := io.ReadFull(c.r, h[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(h[1:])
	if n > MaxPayload {
		return 0, nil, fmt.Errorf("receive frame %q: a length of %d bytes", h[0], n)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(c.r, p); err != nil {
		return 0, nil, err
	}
	return Kind(h[0]), p, nil
}

// Output is a writer that sends what it gets as frames of one kind.
func (c *Conn) Output(k Kind) io.Writer { return output{c, k} }

type output struct {
	c *Conn
	k Kind
}

func (o output) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		part := p[n:min(n+MaxPayload, len(p))]
		if err := o.c.Send(o.k, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}
