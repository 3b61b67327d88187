//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// asked is how often a check connects: one of four endpoints stays out with a probability of 10⁻⁷.
	asked = 60
	// lameduck is how long a pod that is deleted still serves.
	lameduck = 8 * time.Second
	// pace is the time between two connections of load.
	pace = 50 * time.Millisecond
)

// serve answers connections with this pod's name and their client's address if serving, until the pod is deleted.
func serve(ctx context.Context, serving bool) error {
	if !serving {
		<-ctx.Done()
		return nil
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	server := http.Server{Addr: ":8080", ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		client, _, _ := net.SplitHostPort(in.RemoteAddr)
		fmt.Fprintln(out, host, client)
	})}
	go func() {
		<-term
		time.Sleep(lameduck)
		server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// answers are those of an address.
type answers struct {
	// Pods answered, who saw Clients.
	Pods, Clients []string
	Error         string
}

// get returns the name of the pod that answers and the address that it sees.
func get(client *http.Client, url string) (pod, from string, err error) {
	answer, err := client.Get(url)
	if err != nil {
		return "", "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	words := strings.Fields(string(text))
	if err == nil && len(words) != 2 {
		err = fmt.Errorf("%s: %q", answer.Status, text)
	}
	if err != nil {
		return "", "", err
	}
	return words[0], words[1], nil
}

// ask prints the answers of URLs, as JSON.
func ask(urls []string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	all := map[string]*answers{}
	for _, url := range urls {
		all[url] = &answers{}
		for range asked {
			pod, from, err := get(client, url)
			if err != nil {
				all[url].Error = err.Error()
				break
			}
			all[url].Pods, all[url].Clients = append(all[url].Pods, pod), append(all[url].Clients, from)
		}
		for _, list := range []*[]string{&all[url].Pods, &all[url].Clients} {
			slices.Sort(*list)
			*list = slices.Compact(*list)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

// report is the result of load.
type report struct {
	// Connections is how many were made, of which Failed had no answer.
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
	repeat := func(url string, transport *http.Transport, fresh bool) {
		client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
		for ; ctx.Err() == nil; time.Sleep(pace) {
			began := time.Now()
			_, _, err := get(client, url)
			mu.Lock()
			if fresh {
				r.Connections++
			}
			r.Slowest = max(r.Slowest, time.Since(began))
			if err != nil {
				r.Failed++
				r.Errors = append(r.Errors, began.Format(time.TimeOnly)+" "+err.Error())
			}
			mu.Unlock()
		}
	}
	for _, url := range urls {
		work.Go(func() { repeat(url, &http.Transport{DisableKeepAlives: true}, true) })
		work.Go(func() {
			var dials atomic.Int64
			repeat(url, &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, network, address)
			}}, false)
			mu.Lock()
			defer mu.Unlock()
			r.Broken += max(0, int(dials.Load())-1)
		})
	}
	work.Wait()
	r.Errors = r.Errors[:min(len(r.Errors), 5)]
	return json.NewEncoder(os.Stdout).Encode(r)
}
