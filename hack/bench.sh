#!/bin/sh
# Compares costs with the C stack, in the lab and on the simulated mlx5 device; see
# docs/performance.md. bench.sh -h shows the flags; "bench.sh lab", "bench.sh clock" and
# "bench.sh mlx5" do that part alone.
exec go -C "$(dirname "$0")" run ./bench "$@"
