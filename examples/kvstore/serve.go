package main

import (
	"encoding/binary"
	"errors"

	"github.com/seed33544411/rma"
)

// Writes are messages to the owner of the key:
//
//	0  1 to put, 2 to remove
//	1  length of the key
//	2  key, value
//
// and the owner answers
//
//	0  status
//	1  version, 8 bytes
//
// The lowest byte of both tags is the number of the client in its rank.
const (
	requestTag = 0x6b7600
	answerTag  = 0x6b7700
	clientBits = 0xff
	maxClients = clientBits + 1

	opPut    = 1
	opRemove = 2

	maxRequest = 2 + maxRoom
	answerSize = 1 + 8
)

// statuses holds the errors by their number in an answer.
var statuses = [...]error{nil, errNotFound, errTooLong, errFull, errTorn, errProtocol}

// appendRequest encodes a request. The caller has checked the lengths.
func appendRequest(b []byte, op byte, key, value []byte) []byte {
	b = append(b, op, byte(len(key)))
	return append(append(b, key...), value...)
}

// parseRequest decodes a request.
func parseRequest(b []byte) (op byte, key, value []byte, err error) {
	if len(b) < 2 || len(b) > maxRequest || int(b[1]) > len(b)-2 || b[1] == 0 || b[0] != opPut && b[0] != opRemove {
		return 0, nil, nil, errProtocol
	}
	end := 2 + int(b[1])
	return b[0], b[2:end], b[end:], nil
}

func appendAnswer(b []byte, version uint64, err error) []byte {
	status := len(statuses) - 1
	for i, s := range statuses {
		if errors.Is(err, s) {
			status = i
			break
		}
	}
	return binary.LittleEndian.AppendUint64(append(b, byte(status)), version)
}

func parseAnswer(b []byte) (version uint64, err error) {
	if len(b) != answerSize || int(b[0]) >= len(statuses) {
		return 0, errProtocol
	}
	return binary.LittleEndian.Uint64(b[1:]), statuses[b[0]]
}

// server executes writes to a shard, in the progress engine: the application of the rank
// takes no part.
type server struct {
	shard
	eng     *rma.Engine
	answers []int // in flight, by rank
}

func (s *server) handle(m rma.Envelope, parts [][]byte) {
	// A client has one request at a time. A rank that does not take its answers gets no more.
	if s.answers[m.From] >= maxClients {
		return
	}
	// A copy: the sender can still change the bytes in the ring.
	b := make([]byte, 0, maxRequest)
	for _, p := range parts {
		b = append(b, p...)
	}
	s.answers[m.From]++
	version, err := s.carryOut(b)
	answer := appendAnswer(make([]byte, 0, answerSize), version, err)
	s.eng.Peer(m.From).SendFunc(answerTag|m.Tag&clientBits, answer, func(error) { s.answers[m.From]-- })
}

func (s *server) carryOut(b []byte) (version uint64, err error) {
	op, key, value, err := parseRequest(b)
	if err != nil {
		return 0, err
	}
	rank, home := s.home(key)
	switch {
	case rank != s.eng.Rank():
		return 0, errProtocol
	case op == opPut:
		return s.put(home, key, value)
	}
	return s.remove(home, key)
}

// handling returns the handler's options: the tags of all clients, and the size of a request.
var handling = rma.HandlerOptions{Tag: requestTag, Ignore: clientBits, MaxSize: maxRequest}
