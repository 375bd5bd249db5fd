package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
)

func TestFramesRoundTrip(t *testing.T) {
	var b bytes.Buffer
	c := NewConn(&b, &b)
	if err := c.SendJSON(Start, Job{Argv: []string{"a", "b"}}); err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("x"), MaxPayload+7)
	if n, err := c.Output(Stdout).Write(long); n != len(long) || err != nil {
		t.Fatalf("write = %d, %v", n, err)
	}
	k, p, err := c.Recv()
	var j Job
	if err != nil || k != Start || json.Unmarshal(p, &j) != nil || len(j.Argv) != 2 {
		t.Fatalf("got %q %q %v", k, p, err)
	}
	var got []byte
	for range 2 {
		k, p, err := c.Recv()
		if err != nil || k != Stdout {
			t.Fatalf("got %q %v", k, err)
		}
		got = append(got, p...)
	}
	if !bytes.Equal(got, long) {
		t.Errorf("output of %d bytes came back as %d", len(long), len(got))
	}
	if _, _, err := c.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: got %v, want EOF", err)
	}
}

func TestRecvRefusesBadFrames(t *testing.T) {
	for name, in := range map[string][]byte{
		"too long": {'o', 0xff, 0, 0, 0},
		"cut":      {'o', 0, 0, 0, 4, 'a'},
	} {
		if _, _, err := NewConn(bytes.NewReader(in), nil).Recv(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := NewConn(nil, io.Discard).Send(Stdout, make([]byte, MaxPayload+1)); err == nil {
		t.Error("sent a frame that the other side refuses")
	}
}
