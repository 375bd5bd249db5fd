package howto

import (
	"context"
	"fmt"

	"github.com/pureverbs/rdma/doctor"
)

// Ready says what keeps this process, with its user and its limits, from registering so much
// memory and sending it; nothing if it can. o.System is for tests.
func Ready(ctx context.Context, o doctor.Options) (problems []string, err error) {
	report, err := doctor.Examine(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, f := range report.Findings {
		if f.Severity != doctor.Error {
			continue
		}
		text := fmt.Sprintf("%s: %s", f.Object, f.What)
		for _, fix := range f.Fixes {
			text += fmt.Sprintf("; %s: %s", fix.Where, fix.Command)
		}
		problems = append(problems, text)
	}
	return problems, nil
}
