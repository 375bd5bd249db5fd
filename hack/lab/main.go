//go:build linux

// Lab boots virtual machines with the RDMA drivers of real kernels and runs tests
// and commands inside. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
)

const usage = `usage: lab COMMAND [flags]

  prepare   fetch and make what the guests need (the other commands do so by themselves)
  run       run Go tests, or executable files, inside: lab run [flags] ./uverbs ./tests
  exec      run one command inside: lab exec [flags] -- rping -s -C 1
  shell     an interactive shell inside

lab COMMAND -h shows the flags. Exit status: that of the job; 2: it could not be run;
124: its time was up.
`

// Exit statuses of our own.
const (
	exitFailed  = 1
	exitTrouble = 2
	exitTimeout = 124
)

func main() {
	os.Exit(lab(os.Args[1:]))
}

// lab runs a command. Everything that must be cleared away is, when it returns.
func lab(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return exitTrouble
	}
	commands := map[string]func(context.Context, *interrupts, options) (int, error){
		"prepare": prepareCommand, "run": runCommand, "exec": execCommand, "shell": shellCommand,
	}
	command, ok := commands[args[0]]
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		return exitTrouble
	}
	o, err := parseOptions(args[0], args[1:], os.Stderr)
	if err != nil {
		return exitTrouble // it is said already
	}
	ctx, sig := catchInterrupts(context.Background())
	defer sig.stop()
	code, err := command(ctx, sig, o)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, context.Canceled) {
			err = errors.New("interrupted") // whatever that broke
		}
		say("%v", err)
	}
	return code
}

// say tells the user what goes on.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "lab: "+format+"\n", args...)
}
