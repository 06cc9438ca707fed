//go:build !unix

package sampling

const nonblock = 0
