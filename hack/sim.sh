#!/bin/sh
# Runs the tests on the simulated mlx5 device. What they need is rdma-core, the one of this
# Debian, which is installed if that is allowed, and the newest, which is only unpacked.
# SCENARIOS is how many random scenarios are held against libmlx5, in each mode and with both;
# 10000 take more than an hour.
set -eu
cd "$(dirname "$0")/.."
packages='gcc libc6-dev rdma-core ibverbs-utils ibverbs-providers libibverbs-dev'
missing() { ! dpkg -s $packages >/dev/null 2>&1; }
install() { apt-get install -y --no-install-recommends $packages; }
if missing; then
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
		printf 'rdma-core is missing on this machine; on Debian install it with\n\n    sudo apt-get install -y %s\n\n' "$packages" >&2
		exit 1
	fi
	export DEBIAN_FRONTEND=noninteractive
	install || { apt-get update && install; }
fi
hack/rdma-core-newest.sh >/dev/null
export RDMA_TEST_REQUIRE=1
go build -o bin/mlx5sim ./tests/mlx5sim
go test -count=1 -timeout 30m ./tests/mlx5sim
go test -count=1 -timeout 30m -run TestSimulated ./tests/pingpong
exec go test -count=1 -timeout 90m ./tests/oracle -oracle.side -oracle.random="${SCENARIOS:-100}" "$@"
