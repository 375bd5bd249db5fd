//go:build !linux

// Init is the guest's first process.
package main

func main() {}
