package verbs

// rawGID is an entry as the library's table query gives it.
type rawGID struct {
	gid                       [16]byte
	index, port, typ, ifindex uint32
}
