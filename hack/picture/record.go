//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/creack/pty"
)

// piece is what was printed at a time.
type piece struct {
	at   time.Duration
	text string
}

type recording []piece

// record runs a command on a terminal. What it says on stderr is not part of the picture.
func record(command []string, columns int) (recording, error) {
	cmd := exec.Command(command[0], command[1:]...)
	terminal, tty, err := pty.Open()
	if err != nil {
		return nil, err
	}
	defer terminal.Close()
	if err := pty.Setsize(terminal, &pty.Winsize{Rows: 60, Cols: uint16(columns)}); err != nil {
		return nil, errors.Join(err, tty.Close())
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, os.Stderr
	cmd.Env = append(os.Environ(), "TERM=xterm")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	begin := time.Now()
	err = cmd.Start()
	tty.Close()
	if err != nil {
		return nil, err
	}
	var rec recording
	for buf := make([]byte, 64<<10); ; {
		n, err := terminal.Read(buf)
		if n > 0 {
			rec = append(rec, piece{time.Since(begin), string(buf[:n])})
		}
		if err != nil { // EIO: the last one has closed it
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("%s: %w", command[0], err)
	}
	return rec, nil
}

// The file of a recording is asciicast v2: a header, and an array for each piece.
type castHeader struct {
	Version int `json:"version"`
	Width   int `json:"width"`
	Height  int `json:"height"`
}

func saveCast(name string, rec recording, columns int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(f)
	err = enc.Encode(castHeader{2, columns, 60})
	for _, p := range rec {
		err = errors.Join(err, enc.Encode([]any{p.at.Seconds(), "o", p.text}))
	}
	return errors.Join(err, f.Close())
}

func loadCast(name string) (rec recording, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for n := 1; in.Scan(); n++ {
		var (
			seconds float64
			kind    string
			p       piece
		)
		if n == 1 {
			continue // the header
		}
		if err := json.Unmarshal(in.Bytes(), &[]any{&seconds, &kind, &p.text}); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, n, err)
		}
		if p.at = time.Duration(seconds * float64(time.Second)); kind == "o" {
			rec = append(rec, p)
		}
	}
	return rec, in.Err()
}
