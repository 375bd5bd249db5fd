// Package rootfs makes the guest's root file system of the host's own programs:
// busybox, the C tools of RDMA and the libraries they need.
package rootfs

// tools are programs copied into the guest with their libraries.
var tools = []string{
	// The shell for scripts. busybox's would prefer its own ip and tc.
	"dash",
	"ip", "tc", "rdma", "ss",
	"ibv_devices", "ibv_devinfo", "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong", "ibv_asyncwatch",
	"rping", "ucmatose", "udaddy", "udpong", "cmtime", "mckey", "rcopy", "rstream", "riostream",
	"rdma_server", "rdma_client", "rdma_xserver", "rdma_xclient",
	"ib_send_lat", "ib_send_bw", "ib_write_lat", "ib_write_bw", "ib_read_lat", "ib_read_bw", "ib_atomic_lat", "ib_atomic_bw",
}

// optional tools are taken if the host has them.
var optional = []string{"strace"}

// Packages are the Debian packages that the tools and the machine come from.
var Packages = []string{
	"busybox-static", "dash", "gcc", "ibverbs-utils", "iproute2", "libc6-dev", "libibverbs-dev",
	"librdmacm-dev", "perftest", "qemu-system-x86", "rdma-core", "rdmacm-utils", "xz-utils", "zstd",
}

// GuestPackages are the Debian packages of the tools alone, for guests of another
// architecture than the machine's.
var GuestPackages = []string{"busybox-static", "dash", "ibverbs-providers", "ibverbs-utils", "iproute2", "perftest", "rdmacm-utils", "strace"}

// providers are the drivers of libibverbs to take: only those that the guest may
// have a device for, since the others complain when they find none.
var providers = []string{"rxe", "siw"}

// patterns of further files: libraries that are loaded by name at run time, so
// that ldd does not show them, and data that tools read.
var patterns = []string{
	"/usr/lib/*-linux-gnu*/libgcc_s.so.1", "/lib/*-linux-gnu*/libgcc_s.so.1", // pthread_cancel, in the C tools
	"/usr/lib/*-linux-gnu*/tc/*.dist", // netem's distributions
	"/etc/iproute2", "/usr/share/iproute2", "/etc/services", "/etc/protocols",
}

// texts are small files written afresh.
var texts = map[string]string{
	"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n",
	"/etc/group":         "root:x:0:\nnogroup:x:65534:\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\n",
	"/etc/hosts":         "127.0.0.1 localhost lab\n::1 localhost lab\n",
	// For the interactive shell, which is busybox's.
	"/etc/shrc": "alias ip=/usr/bin/ip tc=/usr/bin/tc ll='ls -l'\nPS1='lab:\\w# '\n",
}
