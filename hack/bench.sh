#!/bin/sh
# Compares costs with the C stack in the lab; see docs/performance.md.
exec go -C "$(dirname "$0")" run ./bench "$@"
