# Runs inside the lab, where the guest's clock counts instructions. Each line of output is
# "sample NAME WHO VALUE": microseconds, the cost of one iteration without start and
# connection, or for names that end in -kB the memory of one connection.
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

# listening PORT waits until somebody listens there. (A sleep may be over before a program is
# read from /host: waiting for the host takes no instructions.)
listening() {
	for i in $(seq 200); do
		rdma resource show cm_id | grep -q "LISTEN.*:$1\b" && return
		sleep 0.05
	done
	echo "nobody listens on port $1"
	exit 1
}

# cmtime_c COUNT / cmtime_go COUNT make so many connections and leave the client's steps in
# /tmp/out, "NAME: MILLISECONDS ...", with its greatest resident size in kB at the end.
cmtime_c() {
	cmtime -b 10.9.0.1 -p 7182 >/tmp/server 2>&1 &
	server=$!
	listening 7182
	busybox time -f 'resident %M' cmtime -s 10.9.0.1 -p 7182 -c $1 >/tmp/out 2>&1 || { cat /tmp/out; exit 1; }
	kill $server # it never ends by itself
	wait $server 2>/dev/null
	return 0
}
cmtime_go() {
	gocmtime -b 10.9.0.1 -p 7183 -c $1 >/tmp/server 2>&1 &
	server=$!
	listening 7183
	busybox time -f 'resident %M' gocmtime -s 10.9.0.1 -p 7183 -c $1 >/tmp/out 2>&1 || { cat /tmp/out /tmp/server; exit 1; }
	wait $server
}
resident() { awk -v f=$factor '$1 == "resident" {print $2 / f}' /tmp/out; }

# steps WHO COUNT: what the connections of the last run took.
steps() {
	awk -F '[: ]+' -v who=$1 -v n=$2 '
		{ name = $1 == "connect" || $1 == "disconnect" || $1 == "destroy" ? $1 : $1 " " $2; ms = name == $1 ? $2 : $3 }
		name ~ /^(create id|resolve addr|resolve route|create qp|connect)$/ { up += ms }
		name ~ /^(disconnect|destroy)$/ { down += ms }
		END {
			print "sample cmtime-connect", who, up * 1000 / n
			print "sample cmtime-disconnect", who, down * 1000 / n
		}' /tmp/out
}

# A connect whose packet is lost takes seconds longer; so many at once do not overrun anything.
conns=300
cmtime_go 1
# What busybox calls kB is four times as much in some versions.
factor=$(awk '$1 == "peak" {kB = $2} $1 == "resident" {printf "%d\n", $2 / kB + 0.5}' /tmp/out)
one_go=$(resident)
cmtime_c 1
one_c=$(resident)
for round in $(seq $rounds); do
	for who in c go; do
		cmtime_$who $conns
		steps $who $conns
		eval one=\$one_$who
		echo "sample cmtime-kB $who $(awk -v many=$(resident) -v one=$one -v n=$((conns - 1)) 'BEGIN {print (many - one) / n}')"
	done
done

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
