# The games that C and Go play inside the lab, for lab.sh and clock.sh. A sample is a line
# "sample NAME WHO VALUE"; without more in its name the value is microseconds an iteration, start
# and connection taken out.
device=$RDMA_LAB_DEVICE
address=10.9.0.1

# Memory is where the C programs are, too: /host is read from the host, while the clock stands
# still or runs.
mkdir /tmp/bin
for file in /host/*; do
	[ -x $file ] && cp $file /tmp/bin # the scripts are none
done
export PATH=/tmp/bin:$PATH

# How our programs can wait: on the netpoller, or blocking their thread. Rows of the second end
# in -block.
waits="netpoller block"

# row NAME WAIT is the name of a row, flag WAIT what our programs are told.
row() { [ $2 = block ] && echo $1-block || echo $1; }
flag() { [ $1 = block ] && echo "$2"; }

fail() {
	echo "$*"
	cat /tmp/out /tmp/server
	exit 1
}

# listening PORT waits until somebody listens there. (A sleep may be over before a program is
# read from /host: waiting for the host takes no instructions.)
listening() {
	for i in $(seq 200); do
		rdma resource show cm_id | grep -q "LISTEN.*:$1\b" && return
		sleep 0.05
	done
	fail "nobody listens on port $1"
}

# meeting waits until somebody listens on the TCP port of the pingpong programs.
meeting() {
	for i in $(seq 200); do
		ss -ltn | grep -q ":18515\b" && return
		sleep 0.05
	done
	fail "nobody waits for a game of pingpong"
}

# volley WHO NAME PROGRAM is a game of ibv_rc_pingpong or of ours, which time themselves; the
# client's time counts. There is no such C program for iWARP.
volley() {
	$3 -d ${device}0 -g 1 -e -s 64 -n $iters >/tmp/server 2>&1 &
	server=$!
	meeting
	$3 -d ${device}0 -g 1 -e -s 64 -n $iters 127.0.0.1 >/tmp/out 2>&1 || fail "$3"
	wait $server
	awk -v who=$1 -v name=$2 '/usec\/iter/ {print "sample", name, who, $(NF-1)}' /tmp/out
}

# heard WHO N plays rping, and again where siw did not hear the client's first message, which it
# may miss while it accepts (up to Linux 7.2 at least): C hangs then. Ours gets over it after
# seconds: such a round is an outlier, and why rows of rping are medians.
heard() {
	for try in 1 2 3; do
		rping_$1 $2 && return
	done
	fail "rping_$1 $2"
}

# rping_c N, rping_netpoller N and rping_block N leave what a run of the client took in /tmp/out.
rping_c() {
	rping -s -a $address -p 7180 -C $1 >/tmp/server 2>&1 &
	server=$!
	listening 7180
	spent timeout 120 rping -c -a $address -p 7180 -C $1 >/tmp/out 2>&1 && wait $server && return
	kill $server
	wait $server 2>/dev/null
	return 1
}
rping_netpoller() { spent timeout 120 rdma-ping --rping -q -i 0 -c $1 -s 64 -p 7181 $address >/tmp/out 2>&1; }
rping_block() { spent timeout 120 rdma-ping --rping --block -q -i 0 -c $1 -s 64 -p 7184 $address >/tmp/out 2>&1; }

# took is what "spent" said of the last run.
took() { awk '$1 == "spent" {print $2}' /tmp/out; }

# serve starts the servers that our rpings call; unserved ends them.
serve() {
	rdma-ping serve -q -p 7181 >/tmp/serve 2>&1 &
	servers=$!
	listening 7181
	case $waits in *block*)
		rdma-ping serve --block -q -p 7184 >/tmp/serve-block 2>&1 &
		servers="$servers $!"
		listening 7184 ;;
	esac
}
unserved() {
	kill $servers
	wait $servers 2>/dev/null
}

# short WHO is the shortest of three short runs, of $lead iterations: what start and connection
# take. A connect whose first packet is lost takes seconds longer.
short() {
	for i in 1 2 3; do
		heard $1 $lead
		took
	done | sort -n | head -n 1
}
shorts() {
	for who in c $waits; do
		eval few_$who=$(short $who)
	done
}

# rpings plays a round of all of them.
rpings() {
	for who in c $waits; do
		heard $who $((iters + lead))
		eval few=\$few_$who
		eval cost_$who=$(awk -v many=$(took) -v few=$few -v n=$iters 'BEGIN {print (many - few) / n}')
	done
	for wait in $waits; do
		eval cost=\$cost_$wait
		echo "sample $(row rping-$device $wait) c $cost_c"
		echo "sample $(row rping-$device $wait) go $cost"
	done
}

# pingpongs plays a round of all of them.
pingpongs() {
	[ $device = siw ] && return
	for wait in $waits; do
		volley c $(row pingpong-$device $wait) ibv_rc_pingpong
		volley go $(row pingpong-$device $wait) "pingpong $(flag $wait -block)"
	done
}
