package health

import (
	"encoding/json"
	"net/http"
)

// answer writes 200 or 503 with a body. It calls told, unless that is nil, with the code.
func answer(w http.ResponseWriter, good bool, body any, told func(code int)) {
	code := http.StatusServiceUnavailable
	if good {
		code = http.StatusOK
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// An error means that the client has left.
	_ = json.NewEncoder(w).Encode(body)
	if told != nil {
		told(code)
	}
}
