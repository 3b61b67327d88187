package synthetic

import "slices"

// prepared are the initial objects of all Services in protobuf, by resource, Service and piece.
type prepared map[resource][][][]byte

// Prepare encodes all objects; it must be called before the first change. Sending them then costs little more than
// copying, so that the server uses as little CPU as if it ran on another machine. It needs as much memory as the lists.
func (s *Server) Prepare() error {
	all := prepared{}
	v := s.now()
	for _, k := range []*kind{serviceKind(), endpointSliceKind()} {
		w := &protoWriter{kind: k}
		objects := make([][][]byte, v.size.Services)
		for number := range objects {
			service := v.at(number)
			for piece := range v.pieces(k, service) {
				content, err := w.marshal(k.of(service, piece))
				if err != nil {
					return err
				}
				objects[number] = append(objects[number], slices.Clone(content))
			}
		}
		all[k.resource] = objects
	}
	s.prepared.Store(&all)
	return nil
}

// ready is an encoded object, which can only be sent. Its embedded object is nil.
type ready struct {
	object
	content []byte
}

// Size returns the encoded length.
func (r *ready) Size() int { return len(r.content) }

// MarshalToSizedBuffer copies it.
func (r *ready) MarshalToSizedBuffer(b []byte) (int, error) { return copy(b, r.content), nil }

// ready returns an encoded object, or nil if it has changed since the start or was not prepared.
func (v *view) ready(k *kind, number, piece int) object {
	if _, changed := v.changed[number]; changed || v.prepared == nil || number >= v.size.Services {
		return nil
	}
	return &ready{content: (*v.prepared)[k.resource][number][piece]}
}
