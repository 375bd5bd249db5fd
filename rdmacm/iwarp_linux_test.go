package rdmacm_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
)

// TestListenBothFamilies: on iWARP it takes two ids, and a kernel whose driver can do that.
func TestListenBothFamilies(t *testing.T) {
	siw := []fakekernel.Device{{Driver: abi.RDMA_DRIVER_SIW}}
	for kernel, works := range map[string]bool{"5.10": false, "6.1": true} {
		k := newKernel(t, fakekernel.Options{Devices: siw, Kernel: kernel})
		l, err := rdmacm.Listen(testContext(t), ":7174", options(k, nil))
		if works {
			testutil.Must(t, err)
			testutil.Must(t, l.Close())
			continue
		}
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "listen on 0.0.0.0") {
			t.Errorf("%s: got %v, want EADDRINUSE and what to do", kernel, err)
		}
		l, err = rdmacm.Listen(testContext(t), "0.0.0.0:7174", options(k, nil))
		testutil.Must(t, err)
		testutil.Must(t, l.Close())
	}
}
