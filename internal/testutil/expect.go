package testutil

import (
	"errors"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Fill fills b with bytes that depend on seed only.
func Fill(b []byte, seed uint64) {
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)}).Read(b)
}

// ExpectClosed waits for n errors, which must be net.ErrClosed and come at once.
func ExpectClosed(t testing.TB, errs <-chan error, n int) {
	t.Helper()
	for range n {
		select {
		case err := <-errs:
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v, want net.ErrClosed", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a waiter was not woken")
		}
	}
}
