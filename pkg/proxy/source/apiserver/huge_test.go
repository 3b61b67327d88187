package apiserver

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
)

// huge is the size of the answers in TestHugeAnswers.
const huge = 300 << 20

// inflating returns an answer of some hundred kilobytes that becomes a huge one: the start, and a filling.
func inflating(t *testing.T, start []byte, filling string) []byte {
	pack := func(text []byte) []byte {
		var packed bytes.Buffer
		to := gzip.NewWriter(&packed)
		if _, err := to.Write(text); err != nil || to.Close() != nil {
			t.Fatal("packing failed")
		}
		return packed.Bytes()
	}
	part := pack(bytes.Repeat([]byte(filling), (1<<20)/len(filling)))
	return append(pack(start), bytes.Repeat(part, huge>>20)...)
}

// protoList returns the start of a list of Services in protobuf, up to the content of its first item, which has this size.
func protoList(size int) []byte {
	kind := protowire.AppendTag(nil, 1, protowire.BytesType)
	kind = protowire.AppendString(kind, "v1")
	kind = protowire.AppendTag(kind, 2, protowire.BytesType)
	kind = protowire.AppendString(kind, "ServiceList")
	out := append([]byte(nil), magic...)
	out = protowire.AppendTag(out, 1, protowire.BytesType)
	out = protowire.AppendBytes(out, kind)
	out = protowire.AppendTag(out, 2, protowire.BytesType)
	out = protowire.AppendVarint(out, huge)
	if size > 0 {
		out = protowire.AppendTag(out, 2, protowire.BytesType)
		out = protowire.AppendVarint(out, uint64(size))
	}
	return out
}

// TestHugeAnswers answers all requests with hundreds of megabytes, packed or not: they are given up, the log says so, what is known
// stays in force, and hardly any memory is used.
func TestHugeAnswers(t *testing.T) {
	const large = "an object has more than 8 MiB"
	streams, lists := func(*fakeAPI) {}, func(f *fakeAPI) { f.noStreams = true }
	for name, test := range map[string]struct {
		server  func(*fakeAPI)
		media   string
		code    int
		start   []byte
		filling string
		reason  string
	}{
		"an object in a list, protobuf":   {lists, apiclient.Protobuf, 200, protoList(huge - 20), "a", large},
		"an object in a list, JSON":       {lists, "application/json", 200, []byte(`{"items":[{"metadata":{"name":"`), "a", large},
		"a field of a list, JSON":         {lists, "application/json", 200, []byte(`{"metadata":{"continue":"`), "a", large},
		"objects without names, protobuf": {lists, apiclient.Protobuf, 200, protoList(0), "\x12\x00", ""},
		"objects without names, JSON":     {lists, "application/json", 200, []byte(`{"items":[{}`), ",{}", ""},
		"an object in a stream, protobuf": {streams, apiclient.Protobuf, 200, binary.BigEndian.AppendUint32(nil, huge), "a", large},
		"an object in a stream, JSON":     {streams, "application/json", 200, []byte(`{"type":"ADDED","object":{"metadata":{"name":"`), "a", large},
		"an error":                        {streams, "application/json", 500, []byte(`{"kind":"Status","message":"`), "a", large},
	} {
		t.Run(name, func(t *testing.T) {
			body := inflating(t, test.start, test.filling)
			synctest.Test(t, func(t *testing.T) {
				o := startOutage(t, test.server)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				o.with(func() {
					o.answer = func(w http.ResponseWriter, r *http.Request) bool {
						watch, stream := r.URL.Query().Get("watch") != "", r.URL.Query().Get("sendInitialEvents") != ""
						if test.code == 200 && (watch && !stream || stream && o.noStreams) {
							return false
						}
						w.Header().Set("Content-Type", test.media)
						w.Header().Set("Content-Encoding", "gzip")
						w.WriteHeader(test.code)
						_, _ = w.Write(body)
						return true
					}
				})
				o.restart()
				time.Sleep(3 * time.Second)
				o.put(o.objects(2)...)
				synctest.Wait()
				if got := o.known(); got != "1 1 1 1" {
					t.Errorf("known is %s, want the last state", got)
				}
				if o.logged("List or watch failed; keeping the last known state", test.reason) == 0 || test.reason == large && !slices.Contains(o.causes, "services oversized") {
					t.Errorf("causes are %q, the log is\n%.5000s", o.causes, strings.Join(o.log, "\n"))
				}
				runtime.ReadMemStats(&after)
				if more := int64(after.HeapSys - before.HeapSys); more > huge/2 {
					t.Errorf("%d MB more than before are in use", more>>20)
				}
				o.with(func() { o.answer = nil })
				if took := o.take(2); took > 15*time.Second {
					t.Errorf("recovery took %s", took)
				}
			})
		})
	}
}
