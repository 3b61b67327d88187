package health

import (
	"encoding/json"
	"net/http"
)

// answer writes 200 or 503 with a body, and tells the code to told, if there is one.
func answer(w http.ResponseWriter, good bool, body any, told func(code int)) {
	code := http.StatusServiceUnavailable
	if good {
		code = http.StatusOK
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// The only error is that the client left, and there is nobody else to tell.
	_ = json.NewEncoder(w).Encode(body)
	if told != nil {
		told(code)
	}
}
