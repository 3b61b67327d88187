//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// asked is how often a check connects: one of four endpoints stays out with a probability of 10⁻⁷.
	asked = 60
	// lameduck is how long a pod that is deleted still serves.
	lameduck = 8 * time.Second
	// patience is how long load waits for an answer.
	patience = 10 * time.Second
	// pace is the time between two connections of load.
	pace = 50 * time.Millisecond
	// refused is the answer of ask if the connection is refused.
	refused = "refused"
)

// serve answers with this pod's name if serving, and with its client's address too for the path /client, until the pod is deleted.
func serve(ctx context.Context, serving bool) error {
	if !serving {
		<-ctx.Done()
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	server := http.Server{Addr: ":8080", ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		answer := host
		if in.URL.Path == "/client" {
			client, _, _ := net.SplitHostPort(in.RemoteAddr)
			answer += " " + client
		}
		fmt.Fprint(out, answer)
	})}
	go func() {
		<-ctx.Done()
		time.Sleep(lameduck)
		server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// get returns the answer to a request.
func get(client *http.Client, url string) (string, error) {
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// ask connects to URLs, and prints the different answers of each as one text, as JSON.
func ask(urls []string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	all := map[string]string{}
	for _, url := range urls {
		var answers []string
		for range asked {
			answer, err := get(client, url)
			if errors.Is(err, syscall.ECONNREFUSED) {
				answer = refused
			} else if err != nil {
				answer = err.Error()
			}
			answers = append(answers, answer)
			if err != nil {
				break
			}
		}
		slices.Sort(answers)
		all[url] = strings.Join(slices.Compact(answers), ", ")
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

// report is the result of load.
type report struct {
	// Connections is how many were made, Failed how many of them had no answer.
	Connections, Failed int
	// Broken is how many of those that load kept ended.
	Broken  int
	Slowest time.Duration
	Errors  []string
}

// load connects to each URL again and again, and asks on one more connection that it keeps, until the input ends. It prints the report.
func load(urls []string) error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var mu sync.Mutex
	var r report
	var work sync.WaitGroup
	repeat := func(ask func() error, result func(failed error)) {
		for ; ctx.Err() == nil; time.Sleep(pace) {
			began := time.Now()
			err := ask()
			mu.Lock()
			r.Slowest = max(r.Slowest, time.Since(began))
			if result(err); err != nil {
				r.Errors = append(r.Errors, began.Format(time.TimeOnly)+" "+err.Error())
			}
			mu.Unlock()
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	for _, url := range urls {
		work.Go(func() {
			repeat(func() error { _, err := get(client, url); return err }, func(failed error) {
				if r.Connections++; failed != nil {
					r.Failed++
				}
			})
		})
		work.Go(func() {
			repeat((&kept{url: url}).ask, func(failed error) {
				if failed != nil {
					r.Broken++
				}
			})
		})
	}
	work.Wait()
	r.Errors = r.Errors[:min(len(r.Errors), 5)]
	return json.NewEncoder(os.Stdout).Encode(r)
}

// kept asks on one connection, and makes another one after an error. The client of net/http also does if a busy machine delays it for 50 ms.
type kept struct {
	url    string
	conn   net.Conn
	reader *bufio.Reader
}

func (k *kept) ask() (err error) {
	request, err := http.NewRequest(http.MethodGet, k.url, http.NoBody)
	if err != nil {
		return err
	}
	if k.conn == nil {
		address := request.URL.Host
		if request.URL.Port() == "" {
			address += ":80"
		}
		if k.conn, err = net.DialTimeout("tcp", address, patience); err != nil {
			k.conn = nil
			return err
		}
		k.reader = bufio.NewReader(k.conn)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("connection to %s: %w", k.url, err)
			k.conn.Close()
			k.conn = nil
		}
	}()
	if err := errors.Join(k.conn.SetDeadline(time.Now().Add(patience)), request.Write(k.conn)); err != nil {
		return err
	}
	answer, err := http.ReadResponse(k.reader, request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}
