# Runs inside the lab, where the guest's clock counts instructions. Each line of output is
# "sample NAME WHO MICROSECONDS": the cost of one iteration, without start and connection.
rounds=${ROUNDS:-5}
iters=${ITERS:-3000}
export PATH=$PATH:/host

# now prints the clock in microseconds.
now() { awk '{printf "%d\n", $1 * 1000000}' /proc/uptime; }

# both SERVER CLIENT runs one game and leaves the client's output in /tmp/out.
both() {
	$1 >/tmp/server 2>&1 &
	server=$!
	sleep 1
	$2 >/tmp/out 2>&1 || { cat /tmp/out /tmp/server; exit 1; }
	wait $server
}

# game WHO PROGRAM: the programs time themselves.
game() {
	both "$2 -d rxe0 -g 1 -e -s 64 -n $iters" "$2 -d rxe0 -g 1 -e -s 64 -n $iters 127.0.0.1"
	awk -v who=$1 '/usec\/iter/ {print "sample pingpong-64B-event", who, $(NF-1)}' /tmp/out
}

# rping_c COUNT / rping_go COUNT print how long one client run takes, start included.
rping_c() {
	rping -s -a 10.9.0.1 -p 7180 -C $1 >/tmp/server 2>&1 &
	server=$!
	sleep 1
	start=$(now)
	rping -c -a 10.9.0.1 -p 7180 -C $1 >/tmp/out 2>&1 || { cat /tmp/out; exit 1; }
	echo $(($(now) - start))
	wait $server
}
rping_go() {
	start=$(now)
	rdma-ping --rping -q -i 0 -c $1 -s 64 -p 7181 10.9.0.1 >/tmp/out 2>&1 || { cat /tmp/out; exit 1; }
	echo $(($(now) - start))
}

# least WHO is the shortest of three short runs: what start and connection take. A connect
# whose first packet is lost takes seconds longer.
least() {
	for i in 1 2 3; do rping_$1 100; done | sort -n | head -n 1
}

rdma-ping serve -q -p 7181 >/tmp/serve 2>&1 &
sleep 1
few_c=$(least c)
few_go=$(least go)
for round in $(seq $rounds); do
	game c ibv_rc_pingpong
	game go pingpong
	for who in c go; do
		many=$(rping_$who $((iters + 100)))
		eval few=\$few_$who
		echo "sample rping-64B-event $who $(awk -v d=$((many - few)) -v n=$iters 'BEGIN {print d / n}')"
	done
done
