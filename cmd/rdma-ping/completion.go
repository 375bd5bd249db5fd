package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const completionLong = `completion prints a script that makes a shell complete rdma-ping's commands and
flags, and the names of devices and interfaces.`

const completionExample = `  rdma-ping completion bash >/etc/bash_completion.d/rdma-ping
  rdma-ping completion zsh >"${fpath[1]}/_rdma-ping"
  rdma-ping completion fish >~/.config/fish/completions/rdma-ping.fish`

func (a *app) completionCommand() *cobra.Command {
	scripts := map[string]func(root *cobra.Command) error{
		"bash": func(root *cobra.Command) error { return root.GenBashCompletionV2(a.stdout, true) },
		"zsh":  func(root *cobra.Command) error { return root.GenZshCompletion(a.stdout) },
		"fish": func(root *cobra.Command) error { return root.GenFishCompletion(a.stdout, true) },
	}
	shells := slices.Sorted(maps.Keys(scripts))
	return &cobra.Command{
		Use:                   "completion " + strings.Join(shells, "|"),
		Short:                 "Print a script for the shell's completion",
		Long:                  completionLong,
		Example:               completionExample,
		ValidArgs:             shells,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || scripts[args[0]] == nil {
				return usagef("completion: for which shell? %s", strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return scripts[args[0]](cmd.Root()) },
	}
}
