package features

import (
	"bytes"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// What by its type exists to be changed.
var (
	lock    sync.Mutex             // bad: a lock
	guarded struct{ sync.RWMutex } // bad: holds a lock
	count   atomic.Int64           // bad: a counter
	events  = make(chan int)       // bad: a channel
	shared  = &reader{}            // bad: a pointer
)

// What could be a table, were it not changed.
var (
	number int
	list   = []string{"b", "a"}
	rows   = []reader{{}}
	marks  = map[string]bool{}
	buffer bytes.Buffer
	array  [2]reader
	old    = "old"
)

func change() {
	number = 1             // bad: assigned
	number++               // bad: assigned
	list[0] = "c"          // bad: an element
	rows[0].names = nil    // bad: a field of an element
	marks["a"] = true      // bad: an element
	_ = append(list, "c")  // bad: it may have room
	delete(marks, "a")     // bad: an element
	_ = &number            // bad: its address
	buffer.Reset()         // bad: by its method
	slices.Sort(list)      // bad: in place
	for number = range 3 { // bad: assigned
	}
	os.Args = nil                  // bad: another package's
	http.DefaultClient.Timeout = 1 // bad: another package's
	_, _ = array[0].Read(nil)      // bad: by its method
}
