//go:build !unix

package bench

func kernel() string { return "" }
