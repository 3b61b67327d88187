package proxy

// Event is what happened to an object, for kubectl describe (events.k8s.io/v1).
type Event struct {
	// Kind, Namespace and Name tell the object: a Service, or a Node without namespace. UID is the object's own, without
	// which kubectl describe does not find the event of a Service; a Node's is its name.
	Kind, Namespace, Name, UID string
	// Warning tells that somebody should look at it.
	Warning bool
	// Reason and Action are CamelCase words, Message is a sentence.
	Reason, Action, Message string
	// Once, unless it is empty, stands for what the event is about: as long as the cluster keeps an event of this reason
	// about this object with the same Once, no proxy on any node publishes another.
	Once string
}

// Recorder publishes what happened to objects.
type Recorder interface {
	// Event publishes one event, sooner or later. It must not block.
	Event(e Event)
}
