package view

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// stream writes an object whose items are too many to be held in memory: 45,000 Services are some 30 MB.
type stream func(encoder *json.Encoder, w io.Writer)

// streamed streams a ServiceList. failed is why there are no counters. It ends when the client has closed the connection.
func streamed(s *status.State, f status.Filter, counts *backend.Connections, failed string) stream {
	return func(encoder *json.Encoder, w io.Writer) {
		text, err := json.Marshal(s.List(f, counts, failed))
		if err != nil {
			return // not reached: every field has an encoding
		}
		before, after, _ := strings.Cut(string(text), `"items":[]`) // in a string the quotes have backslashes
		if _, err := io.WriteString(w, before+`"items":[`); err != nil {
			return
		}
		comma := ""
		for service := range s.Services(f, counts) {
			if _, err := io.WriteString(w, comma); err != nil || encoder.Encode(service) != nil {
				return
			}
			comma = ","
		}
		_, _ = io.WriteString(w, "]"+after+"\n")
	}
}
