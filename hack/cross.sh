#!/bin/sh
# Builds and vets (which compiles the tests, too) for every system that must compile, and
# proves that rdma-ping has no cgo in it and needs no library.
set -eu
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

for target in linux/amd64 linux/arm64 linux/riscv64 linux/ppc64le linux/s390x linux/loong64 \
	darwin/arm64 darwin/amd64 windows/amd64; do
	echo "cross: $target"
	GOOS=${target%/*} GOARCH=${target#*/} go build ./...
	GOOS=${target%/*} GOARCH=${target#*/} go vet ./...
done

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for arch in amd64 arm64; do
	if GOOS=linux GOARCH=$arch go list -deps ./cmd/rdma-ping | grep -x runtime/cgo; then
		echo "cross: rdma-ping for $arch depends on cgo" >&2
		exit 1
	fi
	GOOS=linux GOARCH=$arch go build -trimpath -o "$out/rdma-ping" ./cmd/rdma-ping
	go -C hack run ./static "$out/rdma-ping"
done
