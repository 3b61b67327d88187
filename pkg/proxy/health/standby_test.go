package health

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestStandby(t *testing.T) {
	ready := false
	handler := (&Standby{Ready: func() bool { return ready }, WaitingFor: func() string { return "process 7" }}).Handler()
	for _, test := range []struct {
		ready bool
		path  string
		code  int
		body  string
	}{
		{false, "/healthz", http.StatusServiceUnavailable, `{"healthy":false,"waitingFor":"process 7"}`},
		{false, "/livez", http.StatusOK, `{"healthy":true,"waitingFor":"process 7"}`},
		{true, "/healthz", http.StatusOK, `{"healthy":true,"waitingFor":"process 7"}`},
		{true, "/livez", http.StatusOK, `{"healthy":true,"waitingFor":"process 7"}`},
	} {
		ready = test.ready
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, test.path, http.NoBody))
		if w.Code != test.code || w.Body.String() != test.body+"\n" && w.Body.String() != test.body {
			t.Errorf("ready %t: %s gives %d %s, want %d %s", test.ready, test.path, w.Code, w.Body, test.code, test.body)
		}
	}
}
