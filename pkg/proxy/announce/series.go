package announce

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
)

// continues is how long after an Event an equal one belongs to the same series; a later one is a new Event (KEP-383).
const continues = 6 * time.Minute

// series remembers published Events, so that those that happen again are counted instead of created.
type series struct{ known *lru.Cache }

func newSeries() *series { return &series{lru.New(maxObjects)} }

// first is the Event of a series that is in the API.
type first struct {
	name  string
	count int32
	// last is when the series was last published.
	last time.Time
}

// essence is what all Events of a series have in common.
type essence struct {
	regarding                  corev1.ObjectReference
	kind, reason, action, note string
}

func essenceOf(e *eventsv1.Event) essence {
	return essence{e.Regarding, e.Type, e.Reason, e.Action, e.Note}
}

// of returns the Event that this one continues; nil if there is none.
func (s *series) of(o occurrence) *first {
	known, ok := s.known.Get(essenceOf(o.event))
	if !ok || o.once {
		return nil
	}
	f := known.(*first) //nolint:forcetypeassert // only begin adds
	if time.Since(f.last) > continues {
		return nil
	}
	return f
}

// begin records that an Event was created.
func (s *series) begin(o occurrence) {
	if !o.once {
		s.known.Add(essenceOf(o.event), &first{name: o.event.Name, count: 1, last: time.Now()})
	}
}

// patch returns the merge patch that counts another Event at that time.
func (f *first) patch(at metav1.MicroTime) []byte {
	patch, err := json.Marshal(map[string]eventsv1.EventSeries{"series": {Count: f.count + 1, LastObservedTime: at}})
	if err != nil {
		panic(err) // no value of these types has an error
	}
	return patch
}

// again records that the patch was applied.
func (f *first) again() { f.count, f.last = f.count+1, time.Now() }
