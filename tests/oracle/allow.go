package oracle

import (
	"regexp"
	"strings"
)

// Side is whose trace it is.
type Side uint8

// The sides.
const (
	SideC Side = 1 << iota
	SideGo
	Both = SideC | SideGo
)

// Allowance is a difference between the two libraries that is right. It rewrites lines of a
// trace, or with Drop leaves them out.
type Allowance struct {
	Reason   string
	Scenario string // begins with this; "" for all
	Side     Side
	Line     *regexp.Regexp
	Replace  string
	Rewrite  func(line string) string // in place of Replace
	Drop     bool
}

// allowed is the list of all of them.
var allowed = [...]Allowance{
	{
		Reason: "libmlx5 asks by a command without input whether the kernel has INVOKE_WRITE; we need a kernel that has it",
		Side:   SideC, Line: regexp.MustCompile(`^query device 2=1 -> ENOSPC$`), Drop: true,
	},
	{
		Reason: "libmlx5 asks for DEVX with its context, to read capabilities that verbs do not need; we do not",
		Side:   SideC, Line: regexp.MustCompile(`^(get context .* 1000=1000000004000000)01`), Replace: "${1}00",
	},
	{
		Reason: "the capabilities that libmlx5 reads by DEVX",
		Side:   SideC, Line: regexp.MustCompile(`^device command `), Drop: true,
	},
	{
		Reason: "questions change nothing, and when a library asks is its business: libmlx5 at open, we when the answer is needed",
		Side:   Both, Line: regexp.MustCompile(`^query (device|port|GID entry|GID table) `), Drop: true,
	},
	{
		Reason: "libmlx5 makes the page of registers for arming when it opens the device, we with the first completion queue",
		Side:   Both, Line: regexp.MustCompile(`^allocate registers 1001=1 `), Drop: true,
	},
	{
		Reason: "registers go with the context: the order in which they are given back at its end means nothing",
		Side:   Both, Line: regexp.MustCompile(`^free registers `), Drop: true,
	},
	{
		Reason: "libibverbs names the file of asynchronous events with each queue; without it the kernel takes the context's, which is the same",
		Side:   SideC, Line: regexp.MustCompile(` [0-9a-f]+=async\??`), Replace: "",
	},
	{
		Reason: "libmlx5 makes shared queues twice as large, for requests that wait for pages on demand; we have none that wait",
		Side:   Both, Line: regexp.MustCompile(`^(create shared receive queue .* 5=)[0-9a-f]+(.* b=)[0-9a-f]+`), Replace: "${1}N${2}N",
	},
	{
		Reason: "the kernel tells the size of shared queues that it was asked for",
		Side:   Both, Line: regexp.MustCompile(`^(query shared receive queue .* 1=)[0-9a-f]{8}`), Replace: "${1}N",
	},
	{
		Reason: "with a shared queue the size of an own receive queue means nothing: libmlx5 sends what the program said, we nothing",
		Side:   SideC, Line: regexp.MustCompile(`^(create queue pair .* 3=.* 8=.{8}).{8}(.{8}).{8}`), Replace: "${1}00000000${2}00000000",
	},
	{
		Reason: "libmlx5 puts pieces of no length into entries of shared queues, as it does nowhere else; to the device 0 is 2 GiB",
		Side:   SideC, Line: srqRequest, Rewrite: withoutEmpty,
	},
	{
		Reason: "where pieces were left out there is room for the one that says that there are no more",
		Side:   Both, Line: srqRequest, Rewrite: func(line string) string { return strings.TrimSuffix(line, noMorePieces) },
	},
	{
		Reason: "a step between states that there is not we refuse without asking the kernel",
		Side:   SideC, Line: regexp.MustCompile(`^modify queue pair .* -> EINVAL$`), Drop: true,
	},
	{
		Reason:   "libmlx5 consumes a completion that no device writes and reports an error, or what was in memory; we stop there",
		Scenario: "completion of ", Side: Both, Line: regexp.MustCompile(`^# poll c0: |^  c0 record `), Drop: true,
	},
}

var srqRequest = regexp.MustCompile(`^  s\d+ request `)

const noMorePieces = " 00000000 00000100 00000000 00000000"

// withoutEmpty leaves pieces of no length out.
func withoutEmpty(line string) string {
	head, pieces, _ := strings.Cut(line, ":")
	text := head + ":"
	for len(pieces) >= len(noMorePieces) {
		piece := pieces[:len(noMorePieces)]
		pieces = pieces[len(noMorePieces):]
		if !strings.HasPrefix(piece, " 00000000") || piece == noMorePieces {
			text += piece
		}
	}
	return text
}
