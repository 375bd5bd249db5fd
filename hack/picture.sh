#!/bin/sh
# Makes docs/picture.svg: what rdma-ping prints on a terminal, recorded in the VM lab, with the
# kernel's software device. CAST=FILE keeps the recording; hack/picture draws it anew from there.
set -eu
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

go build -trimpath -o bin/rdma-ping ./cmd/rdma-ping
go -C hack build -o ../bin/lab ./lab
go -C hack build -o ../bin/picture ./picture

# What comes before the first prompt is not in the picture: one device is enough for it.
session='
PATH=/host:$PATH
rdma link delete rxea; rdma link delete rxeb
rdma-ping serve -q >/tmp/serve.log 2>&1 &
until grep -q ^listening /tmp/serve.log; do sleep 0.1; done
show() { echo "$ $1"; sleep 1; eval "$1"; echo; sleep 1; }
show "rdma-ping devices"
show "rdma-ping -c 5 10.9.0.1"
show "ip link set dum0 down"
show "rdma-ping doctor | head -n 6"
'
bin/picture -o docs/picture.svg -columns "${COLUMNS:-100}" ${CAST:+-cast "$CAST"} -- \
	bin/lab exec -kernel 6.1 -device rxe -share bin -tty -- sh -c "$session"
