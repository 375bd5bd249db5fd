// Package howto holds the programs of the pages in docs/howto, each of which does one thing.
package howto

import (
	"context"
	"errors"

	"github.com/pureverbs/rdma/uverbs"
)

// completion waits for one completion, asleep, and tells its failure as an error.
func completion(ctx context.Context, cq *uverbs.CQ) (uverbs.WC, error) {
	var wc [1]uverbs.WC
	if _, err := cq.Wait(ctx, wc[:]); err != nil {
		return wc[0], err
	}
	return wc[0], wc[0].Err()
}

// closing closes what was made, the last first.
type closing []func() error

func (c *closing) add(f func() error) { *c = append(*c, f) }

func (c *closing) close() (err error) {
	for i := len(*c) - 1; i >= 0; i-- {
		err = errors.Join(err, (*c)[i]())
	}
	*c = nil
	return err
}
