package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// A fast path is measured between two nodes, by pods without other work: on one of them
//
//	bench -fastpath-serve :5201
//
// and on the other one, through two Services of that server; only the first has a fast path:
//
//	bench -fastpath 10.96.0.10:5201,10.96.0.11:5201
//
// It needs no proxy of its own. The connections alternate, so that what else the nodes do affects both alike.

const (
	// bulkTime is how long one connection sends as much as it can, and opened how many are opened and closed after it.
	bulkTime, opened = 500 * time.Millisecond, 100
	// fastPathLimit bounds the time of one connection.
	fastPathLimit = 5 * time.Minute
)

// serveFastPath answers the first byte of each connection, and reads the rest.
func serveFastPath(listener net.Listener) error {
	for {
		c, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			if _, err := io.CopyN(c, c, 1); err == nil {
				_, _ = io.Copy(io.Discard, c)
			}
		}()
	}
}

// fastPathSide is one of the two Services, with the times to send a megabyte and to open, use and close a connection.
type fastPathSide struct {
	to            string
	bulk, connect []time.Duration
}

// measureFastPath compares the first of two addresses with the second.
func measureFastPath(out io.Writer, dial func(address string) (net.Conn, error), addresses []string, rounds int) error {
	if len(addresses) != 2 {
		return fmt.Errorf("-fastpath %s: give two addresses of Services, the first with a fast path", strings.Join(addresses, ","))
	}
	fast, usual := &fastPathSide{to: addresses[0]}, &fastPathSide{to: addresses[1]}
	for round := range rounds + 1 {
		order := []*fastPathSide{fast, usual}
		if round%2 == 1 {
			order[0], order[1] = usual, fast
		}
		for _, side := range order {
			if err := side.round(dial, round > 0); err != nil {
				return fmt.Errorf("%s: %w", side.to, err)
			}
		}
	}
	for _, side := range []*fastPathSide{fast, usual} {
		gbits := 8e6 / 1e9 * float64(time.Second) / float64(quantile(side.bulk, 0.5))
		fmt.Fprintf(out, "%-24s %8.3f Gbit/s %10v for a connection\n", side.to, gbits, quantile(side.connect, 0.5).Round(100*time.Nanosecond))
	}
	more, uncertain := ratioOfRounds(usual.bulk, fast.bulk, 1)
	longer, unsure := ratioOfRounds(fast.connect, usual.connect, opened)
	_, err := fmt.Fprintf(out, "the first: %.3f ± %.3f times as many bytes a second, %.3f ± %.3f times as long for a short connection\n", more, uncertain, longer, unsure)
	return err
}

// round measures one long connection and some short ones. The first round is not counted.
func (s *fastPathSide) round(dial func(string) (net.Conn, error), counts bool) error {
	bulk, err := s.send(dial)
	if err != nil {
		return err
	}
	var connect []time.Duration
	for range opened {
		start := time.Now()
		c, err := s.open(dial)
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		connect = append(connect, time.Since(start))
	}
	if counts {
		s.bulk, s.connect = append(s.bulk, bulk), append(s.connect, connect...)
	}
	return nil
}

// open opens a connection and exchanges a byte.
func (s *fastPathSide) open(dial func(string) (net.Conn, error)) (net.Conn, error) {
	c, err := dial(s.to)
	if err != nil {
		return nil, err
	}
	err = c.SetDeadline(time.Now().Add(fastPathLimit))
	if err == nil {
		_, err = c.Write([]byte{1})
	}
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// send sends for some time, until the server has read all, and returns the time for a megabyte.
func (s *fastPathSide) send(dial func(string) (net.Conn, error)) (each time.Duration, err error) {
	c, err := s.open(dial)
	if err != nil {
		return 0, err
	}
	defer func() { err = cmp.Or(err, c.Close()) }()
	buffer, sent, start := make([]byte, 1<<20), 0, time.Now()
	for time.Since(start) < bulkTime {
		n, err := c.Write(buffer)
		if sent += n; err != nil {
			return 0, err
		}
	}
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return 0, fmt.Errorf("%T cannot be closed for writing", c)
	}
	if err := half.CloseWrite(); err != nil {
		return 0, err
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		return 0, err
	}
	return time.Duration(float64(time.Since(start)) / float64(sent) * 1e6), nil
}
