package synthetic

import "slices"

// prepared are the objects of all Services as they were at the start, in protobuf: by resource, Service and piece.
type prepared map[resource][][][]byte

// Prepare encodes all that the cluster has, as long as nothing has been changed. Sending it then costs little more than
// copying, as it should where the server stands in for another machine; it takes as much memory as the lists are long.
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

// ready is an object in protobuf, which can only be sent. What it embeds is nil.
type ready struct {
	object
	content []byte
}

// Size is how long it is.
func (r *ready) Size() int { return len(r.content) }

// MarshalToSizedBuffer copies it.
func (r *ready) MarshalToSizedBuffer(b []byte) (int, error) { return copy(b, r.content), nil }

// ready gives an object that need not be encoded, nil if it is not as at the start or was not prepared.
func (v *view) ready(k *kind, number, piece int) object {
	if _, changed := v.changed[number]; changed || v.prepared == nil || number >= v.size.Services {
		return nil
	}
	return &ready{content: (*v.prepared)[k.resource][number][piece]}
}
