# Runs inside the lab, where the guest's clock counts instructions: a microsecond is a thousand.
# A sample in kB is memory, all others are microseconds.
. /host/games.sh

# one WHO PROGRAM: both ends in one process.
one() { timeout 300 $2 $device $address $iters || fail "$2"; }

# cmtime_c COUNT and cmtime_go COUNT make so many connections and leave the client's steps in
# /tmp/out, "NAME: MILLISECONDS ...", and what it spent.
cmtime_c() {
	cmtime -b $address -p 7182 >/tmp/server 2>&1 &
	server=$!
	listening 7182
	timeout 120 spent cmtime -s $address -p 7182 -c $1 >/tmp/out 2>&1 || fail cmtime
	kill $server # it never ends by itself
	wait $server 2>/dev/null
	return 0
}
cmtime_go() {
	gocmtime -b $address -p 7183 -c $1 >/tmp/server 2>&1 &
	server=$!
	listening 7183
	timeout 120 spent gocmtime -s $address -p 7183 -c $1 >/tmp/out 2>&1 || fail gocmtime
	wait $server 2>/dev/null
}
resident() { awk '$1 == "spent" {print $3}' /tmp/out; }

# steps WHO COUNT: what the connections of the last run took.
steps() {
	awk -F '[: ]+' -v who=$1 -v n=$2 -v device=$device '
		{ name = $1 == "connect" || $1 == "disconnect" || $1 == "destroy" ? $1 : $1 " " $2; ms = name == $1 ? $2 : $3 }
		name ~ /^(create id|resolve addr|resolve route|create qp|connect)$/ { up += ms }
		name ~ /^(disconnect|destroy)$/ { down += ms }
		END {
			print "sample cmtime-" device "-connect", who, up * 1000 / n
			print "sample cmtime-" device "-disconnect", who, down * 1000 / n
		}' /tmp/out
}

# connections plays a round of cmtime. A connect whose packet is lost takes seconds longer; so
# many at once do not overrun anything. The C program makes 71 queue pairs at most on siw.
[ $device = siw ] && conns=50 || conns=300
connections() {
	for who in c go; do
		cmtime_$who $conns
		steps $who $conns
		eval one=\$one_$who
		echo "sample cmtime-$device-kB $who $(awk -v many=$(resident) -v one=$one -v n=$((conns - 1)) 'BEGIN {print (many - one) / n}')"
	done
}

# ping WHO COMMAND...: one ping, the whole process. It waits a few times, for as long as a tick
# of the kernel's: so what counts is the CPU's time.
ping() {
	who=$1
	shift
	timeout 60 spent "$@" >/tmp/out 2>&1 || fail "$*"
	echo "sample start-$device $who $(awk '$1 == "spent" {print $4}' /tmp/out)"
	echo "sample start-$device-kB $who $(resident)"
}

: >/tmp/server
for round in $(seq $rounds); do
	one c onebench-c
	one go onebench
done

cmtime_go 1
one_go=$(resident)
cmtime_c 1
one_c=$(resident)
for round in $(seq $rounds); do
	connections
done

serve
rping -s -P -a $address -p 7185 >/tmp/server 2>&1 &
persistent=$!
listening 7185
for round in $(seq $((rounds * 3))); do
	ping c rping -c -a $address -p 7185 -C 1 -S 64
	ping go rdma-ping -q -c 1 -s 64 -p 7181 $address
done
kill $persistent
wait $persistent 2>/dev/null

# one_message WHO PROGRAM: the same with a small program of the library, where there is one in C.
one_message() {
	$2 -d ${device}0 -g 1 -e -s 64 -n 1 >/tmp/server 2>&1 &
	server=$!
	meeting
	timeout 60 spent $2 -d ${device}0 -g 1 -e -s 64 -n 1 127.0.0.1 >/tmp/out 2>&1 || fail "$2"
	wait $server
	echo "sample start-$device-library $1 $(awk '$1 == "spent" {print $4}' /tmp/out)"
	echo "sample start-$device-library-kB $1 $(resident)"
}
if [ $device = rxe ]; then
	for round in $(seq $((rounds * 3))); do
		one_message c ibv_rc_pingpong
		one_message go pingpong
	done
fi

lead=100
shorts
for round in $(seq $rounds); do
	pingpongs
	rpings
done
unserved
