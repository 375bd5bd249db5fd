#!/bin/sh
# Compares costs with the C stack, in the lab and on the simulated mlx5 device; see
# docs/performance.md. bench.sh -h shows the flags; "bench.sh mlx5" does that part alone.
exec go -C "$(dirname "$0")" run ./bench "$@"
