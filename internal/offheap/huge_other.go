//go:build !linux

package offheap

func mapHugeTLB(int) []byte { return nil }

func adviseHuge([]byte) {}
