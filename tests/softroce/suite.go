package main

import "context"

func cmdSuite(context.Context, []string) (int, error) { return 0, usagef("later") }
func cmdPerf(context.Context, []string) (int, error)  { return 0, usagef("later") }
