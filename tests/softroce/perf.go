package main

import "context"

func cmdPerf(context.Context, []string) (int, error) { return 0, usagef("later") }
