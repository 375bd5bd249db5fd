//go:build linux && (amd64 || arm64)

// Package sim runs programs of this machine, C or Go, unchanged, on devices that a
// [fakekernel.Kernel] plays. It sits between them and the real kernel with a seccomp filter: the
// few system calls that have to do with RDMA are answered here, all others run as they
// do otherwise.
//
// What is faked and what is not:
//
//   - /sys/class has the classes of the devices, in a mount namespace of the program's own.
//   - Opening a device node gives a memory file; there need not be any node in /dev. fstat and stat
//     say that it is the device.
//   - ioctl with a verbs command and write to the memory file go to the model, which reads and writes
//     the memory of the program.
//   - mmap is checked by the model and then carried out by the real kernel, on the memory file:
//     registers are memory that both sides have.
//   - Files of events are pipes.
//   - RDMA netlink does not exist, so that all read /sys.
//
// Descriptors are those of the real kernel. A memory file is told by its inode, whatever
// its number in whatever process; and when the last reference to it has gone inotify says so. So
// dup, fork, exec, passing descriptors over sockets and the death of processes are as
// with a device.
//
// What is not seen: write on a number that dup2 made, outside of the range that the filter looks
// at; munmap.
package sim
