//go:build linux && (amd64 || arm64)

package sim

import "fmt"

// Refused says that this machine does not let programs be supervised, and at which step.
type Refused struct {
	Step string
	Err  error
}

func (r *Refused) Error() string { return fmt.Sprintf("refused here: %s: %v", r.Step, r.Err) }

func (r *Refused) Unwrap() error { return r.Err }

func refused(step string, err error) error {
	if err == nil {
		return nil
	}
	return &Refused{step, err}
}
