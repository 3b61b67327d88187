package view

import (
	"context"
	"errors"
	"maps"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// attempts is how often a comparison is made while the plan changes.
const attempts = 3

var errBusy = errors.New("the rules are being changed all the time: try again later")

// Compare is [status.State.Compare] of the state in force. It compares again if a sync came in between, which would differ from the
// plan that it began with.
func (o *Observer) Compare(ctx context.Context, mode string) (*v1alpha1.Comparison, error) {
	for range attempts {
		before := o.State()
		found, err := before.Compare(ctx, mode)
		if err != nil || len(found.Items) == 0 {
			return found, err
		}
		if after := o.State(); maps.Equal(after.InForce, before.InForce) && after.Info.Pending == nil && before.Info.Pending == nil {
			return found, nil
		}
	}
	return nil, errBusy
}
