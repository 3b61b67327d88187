package health

import (
	"encoding/json"
	"net/http"
)

// answer writes 200 or 503 with a body, and calls answered with the code unless it is nil.
func answer(w http.ResponseWriter, good bool, body any, answered func(code int)) {
	code := http.StatusServiceUnavailable
	if good {
		code = http.StatusOK
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// An error means that the client has closed the connection.
	_ = json.NewEncoder(w).Encode(body)
	if answered != nil {
		answered(code)
	}
}
