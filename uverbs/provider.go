package uverbs

import (
	"strings"

	"github.com/pureverbs/rdma/abi"
)

// providerInfo names a driver that this package can drive, and the versions of its kernel
// interface.
type providerInfo struct {
	driver         uint32
	name           string
	minABI, maxABI uint32
}

// providers is the one static table: a new device is one line here and one package.
var providers = [...]providerInfo{
	{abi.RDMA_DRIVER_RXE, "rxe", 1, 2},
}

func findProvider(driver uint32) *providerInfo {
	for i := range providers {
		if providers[i].driver == driver {
			return &providers[i]
		}
	}
	return nil
}

func providerNames() string {
	names := make([]string, len(providers))
	for i := range providers {
		names[i] = providers[i].name
	}
	return strings.Join(names, ", ")
}
