module github.com/pureverbs/rdma/tests/c/cgobench

go 1.25
