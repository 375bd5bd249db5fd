//go:build !linux

package uapi

// Host returns an Opener whose methods all fail with ErrNotLinux.
func Host() Opener { return nowhere{} }

type nowhere struct{}

func (nowhere) Open(string) (File, error)         { return nil, ErrNotLinux }
func (nowhere) Adopt(int32) (File, error)         { return nil, ErrNotLinux }
func (nowhere) AdoptBlocking(int32) (File, error) { return nil, ErrNotLinux }
func (nowhere) Stat(string) (uint64, error)       { return 0, ErrNotLinux }

// AllocPages fails with ErrNotLinux.
func AllocPages(int) ([]byte, error) { return nil, ErrNotLinux }

// FreePages does nothing.
func FreePages([]byte) error { return nil }

// MemlockLimit knows no limit here.
func MemlockLimit() (uint64, bool) { return 0, false }
