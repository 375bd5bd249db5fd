//go:build linux

package fakekernel

import "encoding/binary"

// arming is when a completion queue raises an event. The user writes a word into the record
// and rings: a serial number that he raises with each event he gets, what he waits for, and
// how far he has consumed.
type arming struct {
	word      uint32 // as last read
	fired     int8   // the serial number that had its event, -1 if none had
	armed     uint8
	solicited uint32 // index behind the last entry that was solicited, or an error
	any       bool   // there is one
	lastError bool   // the last entry is one
}

const (
	armSerial    = 28 // two bits
	armSolicited = 1 << 24
)

// armNever is no word of a user. The kernel writes it when the queue is made: 0 is a wish,
// and who shares a register is looked at when another rings. No user reads the word.
const armNever = 1<<32 - 1

func newArming() arming { return arming{word: armNever, fired: -1} }

func (q *mlx5CQ) disarm() {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], armNever)
	_ = q.c.f.mem.out(q.record+4, b[:])
}

// posted notes what was posted last.
func (q *mlx5CQ) posted(isError bool) { q.lastError = isError }

// fires tells whether the entry that was posted last raises an event.
func (q *mlx5CQ) fires(solicited bool) bool {
	if solicited = solicited || q.lastError; solicited {
		q.solicited, q.any = q.pi, true
	}
	if q.armed == notArmed || q.armed == armedSolicited && !solicited {
		return false
	}
	q.fire()
	return true
}

func (q *mlx5CQ) fire() {
	q.armed, q.fired = notArmed, int8(q.word>>armSerial&3)
}

// ring is the doorbell: the record says what is wanted. Where there is already what the
// user waits for, the event is due at once. A serial number that had its event is a wish
// that was granted.
func (q *mlx5CQ) ring() {
	var b [4]byte
	if q.c.f.mem.in(b[:], q.record+4) != nil {
		return
	}
	word := binary.BigEndian.Uint32(b[:])
	if word == q.word {
		return
	}
	if q.word = word; int8(word>>armSerial&3) == q.fired {
		return
	}
	last := q.pi
	if word&armSolicited == 0 {
		q.armed = armedAny
	} else if q.armed != armedAny { // a stronger wish stays
		q.armed = armedSolicited
		if last = q.solicited; !q.any {
			return
		}
	}
	if (last-word)&psnMask-1 < psnMask/2 {
		q.fire()
		q.c.notify()
	}
}
