// Package uapi is the only place of this module that makes system calls on RDMA
// devices: it opens the character devices, builds and issues uverbs ioctls and
// write commands, maps device memory and waits for events.
//
// All of it goes through [File], which has six methods, so everything above runs
// unchanged on a fake kernel. Requests are described by the schema in schema.go:
// it says for each method which attributes exist and how each travels. The same
// table lets the fake kernel refuse what the real one would refuse.
//
// Addresses travel in u64 fields, where neither the garbage collector nor the
// stack copier sees them. So everything a request points at is pinned for the
// length of the call (see [Command.Do]) or lives off the Go heap ([Arena],
// [AllocPages]).
package uapi
