package proxy

// Event describes something that happened to an object, for kubectl describe (events.k8s.io/v1).
type Event struct {
	// Kind, Namespace and Name identify the object: a Service, or a Node without namespace. UID is the object's UID,
	// by which kubectl describe finds the events of a Service; it is ignored for a Node.
	Kind, Namespace, Name, UID string
	// Warning marks events that need attention.
	Warning bool
	// Reason and Action are CamelCase words, Message is a sentence; it is cut at the API's limit.
	Reason, Action, Message string
	// Once, unless it is empty, deduplicates: while the cluster keeps an event with this reason and Once about this
	// object (an hour by default, kube-apiserver --event-ttl), no proxy on any node publishes another.
	Once string
}

// Recorder publishes events.
type Recorder interface {
	// Event queues an event for publishing. It must not block.
	Event(e Event)
}
