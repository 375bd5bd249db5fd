// Package oracle holds this library against rdma-core's libibverbs on a simulated mlx5
// device. Scenarios are a text that two interpreters carry out: [Runner] here, by the public
// API of uverbs, and tests/c/oracle by libibverbs. The device's supervisor writes a trace of
// what each of them does (internal/fakekernel, Options.Trace), and the two traces must be the
// same but for what the allow-list in allow.go excuses, with the reason.
//
// # The language
//
// One step a line, words between blanks; words with "=" are options. An object is named by a
// kind's letter and a number that counts up from 0 in the order in which objects of the kind
// are made. Memory is one arena of [ArenaSize] bytes at the same address in both programs,
// filled with the same bytes.
//
//	scenario NAME                     open the device anew
//	pd P
//	mr M P OFF LEN ACCESS             of the arena; ACCESS: letters of "lwrab", or "-"
//	rereg M OFF LEN ACCESS            other memory and access
//	ch H                              completion channel
//	cq C CQE [ch=H]
//	resize C CQE
//	srq S P WR SGE
//	qp Q TYPE P SCQ RCQ SWR RWR SSGE RSGE INLINE [srq=S] [all]
//	modify Q STATE [peer=Q]           STATE: init rtr rts reset err
//	ah A P [sl=] [rate=] [flow=] [hop=] [class=] [sgid=]
//	mw W P TYPE                       TYPE: 1 2
//	send Q ID OP [sge=LIST] [flags=fsei] [to=REMOTE] [imm=] [add=] [swap=] [inv=KEY]
//	     [ah=A qpn=N qkey=N] [mw=W mr=M off= len= access=]
//	                                  one more request for post; OP: send imm inv write writeimm
//	                                  read swap add linv bind; flags: fence, signaled, event
//	                                  (solicited), inline; LIST: M:OFF:LEN,... or "0"
//	post Q                            post them
//	recv Q ID LIST                    one more request for rpost
//	rpost Q
//	srecv S ID LIST                   one more request for spost
//	spost S
//	bind Q W ID FLAGS M OFF LEN ACCESS  of type 1
//	poll C N [bad]                    N up to 20; with bad the last entry is none that a device writes
//	arm C [se]
//	event H                           an event that is there, or none
//	query Q
//	limit S N
//	squery S
//	close NAME                        an object, as in "close q0"
//	run                               the device carries out what is posted
//	cqe CQ QP KIND ...                the device writes a completion, see internal/fakekernel
//	end                               close all, in the reverse order, and the device
//
// After each step that does something a program says what came of it by a mark: it opens
// /dev/infiniband/mark/TEXT.
//
// # The tests
//
//	go test ./tests/oracle                  the goldens, in process
//	go test ./tests/oracle -oracle.side     side by side with C as well, and a few planted bugs
//	... -oracle.side -oracle.random=10000   as many random scenarios in each mode; takes an hour
//	... -oracle.planted                     all planted bugs
//	... -run Golden -oracle.write           new goldens
//
// Side by side needs a C compiler, libibverbs, and root or user namespaces. The newest rdma-core
// is used as well once hack/rdma-core-newest.sh has fetched it.
package oracle
