package abi

// RDMA_NL_GET_TYPE builds the nlmsg_type of RDMA netlink from a client
// (RDMA_NL_NLDEV ...) and an operation (RDMA_NLDEV_CMD_GET ...). It stands for
// the macro of the same name in rdma/rdma_netlink.h.
func RDMA_NL_GET_TYPE(client, op uint16) uint16 { return client<<10 + op }

// RDMA_NL_GET_CLIENT is the client part of an nlmsg_type.
func RDMA_NL_GET_CLIENT(typ uint16) uint16 { return typ >> 10 & (1<<6 - 1) }

// RDMA_NL_GET_OP is the operation part of an nlmsg_type.
func RDMA_NL_GET_OP(typ uint16) uint16 { return typ & (1<<10 - 1) }
