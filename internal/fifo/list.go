package fifo

// Node links the value that carries it into one List at a time. The zero value is
// in none. A value that may be in a list is not copied.
type Node[T any] struct {
	next, prev *Node[T]
	of         *T
}

// Next is the value behind the one that carries n, nil at the end of the list.
func (n *Node[T]) Next() *T { return n.next.value() }

func (n *Node[T]) value() *T {
	if n == nil {
		return nil
	}
	return n.of
}

// List is a FIFO of values that carry a Node. The zero value is empty.
type List[T any] struct {
	head, tail *Node[T]
	n          int
}

// Len is how many values the list holds.
func (l *List[T]) Len() int { return l.n }

// Front is the oldest value, nil if there is none.
func (l *List[T]) Front() *T { return l.head.value() }

// Push appends v, whose node n is in no list.
func (l *List[T]) Push(n *Node[T], v *T) {
	n.of, n.next, n.prev = v, nil, l.tail
	if l.tail == nil {
		l.head = n
	} else {
		l.tail.next = n
	}
	l.tail = n
	l.n++
}

// PushFront puts v, whose node n is in no list, before all others.
func (l *List[T]) PushFront(n *Node[T], v *T) {
	n.of, n.next, n.prev = v, l.head, nil
	if l.head == nil {
		l.tail = n
	} else {
		l.head.prev = n
	}
	l.head = n
	l.n++
}

// Insert puts v, whose node n is in no list, right behind the value whose node is
// after.
func (l *List[T]) Insert(after, n *Node[T], v *T) {
	if after.next == nil {
		l.Push(n, v)
		return
	}
	n.of, n.next, n.prev = v, after.next, after
	after.next.prev, after.next = n, n
	l.n++
}

// Pop takes the oldest value out, nil if there is none.
func (l *List[T]) Pop() *T {
	n := l.head
	if n == nil {
		return nil
	}
	l.head = n.next
	if n.next == nil {
		l.tail = nil
	} else {
		n.next.prev = nil
	}
	n.next = nil
	l.n--
	return n.of
}

// Remove takes out the value whose node is n. It is in this list.
func (l *List[T]) Remove(n *Node[T]) {
	if n.prev == nil {
		l.head = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		l.tail = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.next, n.prev = nil, nil
	l.n--
}
