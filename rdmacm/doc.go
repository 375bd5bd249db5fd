// Package rdmacm connects queue pairs by IP address: the RDMA connection manager of the
// kernel, in pure Go. It does what librdmacm does for C programs, over the same interface
// (/dev/infiniband/rdma_cm), and talks to any peer that uses it.
//
// A queue pair alone cannot find its peer. The connection manager turns an IP address into
// a device and a path, carries a handshake like TCP's, with a few bytes of the program's
// own (private data), and says which attributes the queue pair has to get. After that it is
// out of the way: data moves through package uverbs. It works over InfiniBand, RoCE and
// iWARP alike.
//
// # Two ways
//
// Most programs want [Dial], [Listen] and [Listener.Accept], which wait, with a context at
// every step, and return a [Conn] with everything in it:
//
//	conn, err := rdmacm.Dial(ctx, "192.0.2.1:7174", &rdmacm.Options{
//		Prepare: func(c *rdmacm.Conn) error { return postReceives(c) },
//	})
//	if err != nil { … }
//	defer conn.Close()
//	conn.QP().PostSend(…)
//	n, err := conn.SendCQ().Wait(ctx, wcs)
//
// [EventChannel] and [ID] are what those are made of: any number of connections, and one
// loop that receives what happens to them, as in librdmacm and jVerbs. The loop is a goroutine
// in [EventChannel.NextEvent], or one of the program's own over descriptors, with
// [EventChannel.SyscallConn] and [EventChannel.TryEvent]. The example Dispatcher has one
// goroutine for all that happens to all connections. [ID.Migrate] hands a connection from one
// loop to another.
//
// # The steps
//
// A client and a server, step by step. The examples EventChannel (client) and
// EventChannel (server) are these very steps.
//
//	                    server                              client
//	event channel       NewEventChannel                     NewEventChannel
//	id                  ch.NewID                            ch.NewID
//	address             id.Bind, id.Listen                  id.ResolveAddr  → EventAddrResolved
//	route               → EventConnectRequest, a new id     id.ResolveRoute → EventRouteResolved
//	device              id.Context                          id.Context
//	protection domain   ctx.AllocPD                         ctx.AllocPD
//	completion channel  ctx.NewCompChannel                  ctx.NewCompChannel
//	completion queue    ctx.CreateCQ                        ctx.CreateCQ
//	notification        cq.Arm, which cq.Wait does          cq.Arm, which cq.Wait does
//	queue pair          id.CreateQP                         id.CreateQP
//	memory region       pd.AllocMR, qp.PostRecv             pd.AllocMR, qp.PostRecv
//	connect             id.Accept → EventEstablished        id.Connect → EventEstablished
//	transfer            qp.PostSend, cq.Wait                qp.PostSend, cq.Wait
//	disconnect          → EventDisconnected, id.Disconnect  id.Disconnect → EventDisconnected
//	teardown            mr.Close, id.Close (closes the queue pair), cq.Close, channel.Close,
//	                    pd.Close, ch.Close, on both sides
//
// Post the receives that the peer's first message needs before Connect or Accept. A message
// that finds no receive is not lost, but repeated after a pause, see
// [ConnParam.MinRNRTimer].
//
// # Events
//
// [EventChannel.NextEvent] is the one place where news comes from. An [Event] is a copy and
// acknowledged when it is returned: an id can be closed from the loop that just received its
// event, and that is the natural thing to do. What would have come for it later is dropped.
//
// The end of a connection is reported once, as EventDisconnected. Its Err is nil if the peer
// ended it, or answered our Disconnect. It is not if the peer did not answer, or if the path
// broke, which kernels since 6.0 report as "unreachable" on a connection that is up; the
// library tells the two apart. EventTimewaitExit may follow, and may be ignored, as the queue
// pair is not used again.
//
// # Private data
//
// Each message of the handshake carries a few bytes between the two programs:
//
//	              InfiniBand, RoCE   datagrams   iWARP
//	Connect       56 (92)            180 (216)   251
//	Accept        196                136         251
//	Reject        148                136         251
//
// in brackets: with addresses of InfiniBand, which the request does not have to carry.
// More is refused with the limit in the error. On InfiniBand and RoCE the receiver always
// gets the full size, padded with zeros, also if the sender gave none: what has a length has
// to carry it itself. It comes from a peer that may be anybody. Check all of it.
//
// # iWARP
//
// Some devices (siw here) run over TCP. There the kernel moves the queue pair by itself; the
// side that connects has to send the first message, or the other side's may break the
// connection; a message for which no receive is posted ends it, as nobody waits for a
// receiver that is not ready. RDMA READs and WRITEs are limited by the peer's keys alone:
// siw does not look at the access flags of a region that is read.
//
// # Addresses
//
// IPv4 and IPv6. A link-local address (fe80::/10) needs a zone, the interface by name or by
// number: "[fe80::1%eth0]:7174". LocalAddr and RemoteAddr give it back. Ports are those of
// the connection manager, not of TCP; on iWARP they are TCP's. 127.0.0.1 leads to a device
// only where one sits on the loopback interface: use an address of the RDMA interface, on
// the same machine too.
//
// # Threads, namespaces, credentials
//
// Nothing here costs an OS thread while it waits. An id belongs to the network namespace of
// the thread that calls [EventChannel.NewID], [Dial] or [Listen]; the library issues the
// call on that very thread, so a goroutine that is locked to its thread and has changed its
// namespace gets what it expects.
//
// The kernel serves an event channel only to the credentials that opened it, and in Go each
// thread has its own after syscall.Setuid and the like. Change ids before the program starts,
// or start it again afterwards; the error is EACCES otherwise, now and then, and says so.
//
// # When it does not work
//
// Errors name the step, the address and, where an errno alone would mislead, the likely
// reason. "rdma resource show cm_id" lists the ids of the kernel, "rdma link" its devices.
// "No such device" means that the address is not one of an RDMA interface; "connection
// rejected: nobody listens" that the device is right and the port is not.
//
// # Datagrams and multicast
//
// [PortSpaceUDP] has unreliable datagrams in place of connections: Connect asks the peer for the
// number and the Q_Key of its queue pair (service id resolution, SIDR), Accept tells them, and
// nothing is established. [ListenDatagram] and [ResolveDatagram] do that in one step each.
// [JoinMulticast], or [ID.JoinMulticast], enters a multicast group. A datagram is one packet,
// and where it is received 40 bytes of header come before it, see [uverbs.ParseGRH]. iWARP has
// none of this.
//
// # Not there
//
// Path records from ibacm, queue pairs of type XRC, and unconnected ids of PortSpaceIB.
package rdmacm
