# make help shows the targets. Nothing here needs more than Go, git and make beforehand:
# what else is needed comes by apt, or the command that brings it is printed.

KERNEL    ?= 6.1
DEVICE    ?= rxe
RUN       ?=
PKG       ?= ./tests ./tests/cmpeer/... ./tests/perftest ./tests/pingpong ./internal/discover ./docs/...
TIMEOUT   ?= 45m
FUZZTIME  ?= 10s
BENCHTIME ?= 1s
DURATION  ?= 3m
COUNT     ?=
SCENARIOS ?= 100
ADDR      ?=
ARGS      ?=

GO     ?= go
LAB    := bin/lab
export CGO_ENABLED := 0
export COUNT ADDR ARGS KERNEL FUZZTIME SCENARIOS

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help ping test unit sim lab lab-fast lab-arch lab-matrix lab-shell stress bench generate generate-check abi-check lint cross fuzz image clean $(LAB)

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

ping: ## ping over RDMA, here or in a VM: COUNT=5 ADDR=10.0.0.7 ARGS='-s 4k' KERNEL=6.1
	@hack/ping.sh

test: unit lint cross ## everything that must pass
	hack/generate-check.sh -offline
	@hack/need-cc.sh
	hack/abi-check.sh
	$(MAKE) lab ARGS=-short
	$(MAKE) lab ARGS=-short DEVICE=siw PKG='./tests ./docs/flows' RUN='$(SIW_RUN)'
	$(MAKE) lab-fast
	$(MAKE) lab-arch
	$(MAKE) sim
	hack/ping.sh -c 5

unit: ## tests that need no device, without and with the race detector
	@hack/need-cc.sh
	$(GO) test $$($(GO) list ./... | grep -v /tests/mlx5sim) # which make sim runs
	CGO_ENABLED=1 $(GO) test -race ./...
	CGO_ENABLED=1 $(GO) -C hack test -race ./...

sim: ## tests on the simulated mlx5 device, our bytes against those of libmlx5: SCENARIOS=100
	hack/sim.sh $(ARGS)

lab: $(LAB) image ## tests on a real kernel in a VM: KERNEL=6.1|all DEVICE=rxe|siw|all RUN=regexp PKG=./tests
	$(LAB) run -kernel $(KERNEL) -device $(DEVICE) -timeout $(TIMEOUT) -run '$(RUN)' -bin ./cmd/rdma-ping $(ARGS) $(PKG)
ifneq ($(if $(RUN),$(findstring RW20,$(RUN)),all),)
	$(LAB) run -kernel $(KERNEL) -no-device -run RW20NoDevice -bin ./cmd/rdma-ping ./tests
	$(LAB) run -kernel $(KERNEL) -no-module -run 'RW20NoModule|DoctorNoModule' -bin ./cmd/rdma-ping ./tests
endif

VERBS := TestVerbs/(RC|UC|Datagram|SRQ|Window|Atomic|Builder)

# The verbs on siw take two minutes, its connections a minute more, perf as long.
SIW_RUN := TestVerbs|TestKernel|TestHotPath|TestEcho|TestPing|TestMany|TestID|TestDevice|TestPerfTool|Interop|RW29

lab-fast: $(LAB) ## the kernel's answers and most verbs, on all kernels and devices
	$(LAB) run -kernel all -device all -short -timeout $(TIMEOUT) -run 'TestKernel|$(VERBS)' ./tests

lab-arch: $(LAB) ## the verbs on arm64 with pages of 16 KiB, and big-endian on s390x
	$(LAB) run -arch arm64 -short -timeout $(TIMEOUT) -run 'TestVerbs' ./tests
	$(LAB) run -arch s390x -short -timeout $(TIMEOUT) -run '$(VERBS)' ./tests

lab-matrix: $(LAB) image ## the tests on all kernels and devices, in short forms
	$(LAB) run -kernel all -device all -short -timeout $(TIMEOUT) -bin ./cmd/rdma-ping ./tests ./docs/flows

# The test ends by itself, and finds out when it does not: the limits are only to be above.
stress: $(LAB) ## random operations of 16 goroutines, with -race here and in a VM: DURATION=3m
	@hack/need-cc.sh
	CGO_ENABLED=1 RDMA_STRESS_DURATION=$(DURATION) $(GO) test -race -count=1 -timeout 24h -run 'TestVerbs/rxe_7.2/Stress' ./uverbs
	$(LAB) run -kernel $(KERNEL) -device $(DEVICE) -timeout 24h -env RDMA_STRESS_DURATION=$(DURATION) -run 'TestVerbs/Stress' ./tests

lab-shell: $(LAB) ## a shell in such a VM: KERNEL=6.1 DEVICE=rxe
	$(LAB) shell -kernel $(KERNEL) -device $(DEVICE)

bench: ## benchmarks, and costs and times as ratios to the C stack, on rxe, siw and simulated mlx5: half an hour
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./mmio ./uverbs
	hack/bench.sh

generate: ## make abi/z*.go from hack/uapi.json
	$(GO) -C hack run . generate

generate-check: ## fail if abi/z*.go is not what the kernel's headers give
	hack/generate-check.sh

abi-check: ## let gcc judge the layouts
	@hack/need-cc.sh
	hack/abi-check.sh

lint: ## gofmt, go vet, golangci-lint
	hack/lint.sh

cross: ## build and vet for all systems; no cgo, static
	hack/cross.sh

fuzz: ## run every fuzz target for FUZZTIME=10s
	hack/fuzz.sh

image: ## the container image, an OCI layout for amd64 and arm64: bin/rdma-ping.oci.tar
	$(GO) -C hack run ./image -o ../bin/rdma-ping.oci.tar

clean: ## remove what was built (not the cache in ~/.cache/pureverbs)
	rm -rf bin

$(LAB):
	$(GO) -C hack build -o ../$(LAB) ./lab
