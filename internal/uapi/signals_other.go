//go:build !linux

package uapi

// Uninterrupted runs f.
func Uninterrupted(f func() error) error { return f() }
