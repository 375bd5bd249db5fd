// Package provider holds what the drivers of devices (rxe, siw, mlx5 ...) share: the
// work requests they encode and the work completions they decode.
//
// A provider turns memory into memory. It fills the driver's part of a create call,
// attaches to the mappings that come back, encodes work requests and decodes
// completions; it makes no system call. The core (package uverbs) checks arguments,
// takes locks, issues the calls and rings the doorbells, so all of that exists once, and
// a provider is tested on byte slices.
//
// There is deliberately no interface over the hot path: uverbs switches over the few
// providers statically, so that the compiler sees that a caller's work requests do not
// escape to the heap.
package provider
