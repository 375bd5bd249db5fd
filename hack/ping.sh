#!/bin/sh
# Measures round trips over RDMA: on this machine if it has a usable device, otherwise in
# a VM with the kernel's own software device. Arguments go to rdma-ping.
#   ADDR     ping this address; without it, a server of our own
#   COUNT    stop after so many (default: until Ctrl-C on a terminal, otherwise 10)
#   KERNEL   kernel of the VM (default 6.1)      LAB=1  take the VM in any case
# Exit status: 0 all answered, 1 some lost, 2 could not run. (make says 2 for each failure.)
set -u
cd "$(dirname "$0")/.." || exit 2
export CGO_ENABLED=0
fail() { echo "ping: $*" >&2; exit 2; }

go build -trimpath -o bin/rdma-ping ./cmd/rdma-ping || exit 2
if [ -z "${COUNT:-}" ] && [ ! -t 1 ]; then COUNT=10; fi
# shellcheck disable=SC2086 # ARGS is a list of options
set -- ${COUNT:+-c "$COUNT"} ${ARGS:-} "$@"

# serve_and_ping starts a server in a session of its own, so that Ctrl-C reaches the client
# alone, and pings it once it listens. The client takes the place of the shell.
serve_and_ping='
log=$1; shift
setsid rdma-ping serve >"$log" 2>&1 &
until grep -q "^listening" "$log"; do
	kill -0 $! 2>/dev/null || { cat "$log" >&2; exit 2; }
	sleep 0.1
done'

devices=$(bin/rdma-ping devices --json) || exit 2
if [ -z "${LAB:-}" ] && echo "$devices" | grep -q '"usable": true'; then
	[ -n "${ADDR:-}" ] && exec bin/rdma-ping "$@" "$ADDR"
	# The table of a RoCE port holds its IPv4 addresses, mapped into IPv6.
	addr=$(echo "$devices" | sed -n 's/.*"gid": "::ffff:\([0-9.]*\)".*/\1/p' | head -n 1)
	[ -n "$addr" ] || fail "the device has no IPv4 address to ping; give one: ADDR=..."
	echo "ping: this machine has an RDMA device: no VM" >&2
	log=$(mktemp) || exit 2
	server=
	trap 'kill $server 2>/dev/null; rm -f "$log"' EXIT
	trap : INT # the client's business: its summary comes first
	PATH=$PWD/bin:$PATH
	set -- "$log" "$@" "$addr"
	eval "$serve_and_ping"
	server=$!
	rdma-ping "$@"
	exit
fi

echo "ping: no usable RDMA device on this machine: a VM with Linux ${KERNEL:=6.1} will do" >&2
go -C hack build -o ../bin/lab ./lab || exit 2
exec bin/lab exec -kernel "$KERNEL" -share bin -timeout 24h -- sh -c "PATH=/host:\$PATH
$serve_and_ping
exec rdma-ping \"\$@\"" ping /tmp/serve.log "$@" "${ADDR:-10.9.0.1}"
