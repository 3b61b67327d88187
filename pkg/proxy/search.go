package proxy

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// maxTries limits the attempts of a search: it is enough for three ports among 10,000, or for some 30 in a row. The next Sync
// continues with what this one found.
const maxTries = 48

// search programs a plan of which one family was refused, except for the ports at fault, which it finds.
type search struct {
	in     *Quarantine
	of     *familyQuarantine
	plan   *plan.Plan
	result *backend.Result
	tries  int
	// innocent means that the rules are accepted without the ports that are not known to be: so these are to blame.
	innocent bool
}

// run fails if no port is to blame.
func (s *search) run(ctx context.Context) {
	if s.refused() == nil {
		return
	}
	refused := s.try(ctx) // others may have modified the rules, before or meanwhile: it reads them
	if refused == nil {
		return
	}
	suspects := s.of.suspects(s.plan, refused.Ports)
	if len(suspects) == 0 {
		return
	}
	// What ports without earlier routes have now, perhaps of another process, goes when they are set aside: at a start, all of them
	// are only as the last resort.
	if s.of.programmed == nil || s.without(ctx, suspects) {
		s.halve(ctx, suspects, refused)
	}
	s.of.aside = nil
}

// without programs the plan without any of the suspects, and reports whether that is accepted.
func (s *search) without(ctx context.Context, suspects []suspect) bool {
	s.of.aside = suspects
	_ = s.try(ctx) // if it fails, the search ends
	s.innocent = s.result.Err == nil
	return s.innocent
}

// halve accepts or quarantines the suspects, which were refused together, from the first to the last. It tries half of those among
// which one is at fault. Most often that is the only one, so when it is found, all others are tried; but several in a row have
// probably the same cause, and are tried one by one.
func (s *search) halve(ctx context.Context, suspects []suspect, refused *backend.RefusedError) {
	// The last attempt included the first few of the suspects, as many as tried. One of the first failing is at fault; if failing is 0, perhaps
	// none is. row is how many were at fault in a row, the last of them just before the first suspect.
	last, tried := refused, len(suspects)
	failing, row := tried, 0
	for {
		switch {
		case refused == nil && s.result.Err != nil:
			return
		case refused == nil:
			suspects, failing, row = suspects[tried:], failing-tried, 0
		case tried > 1:
			failing = tried
		case !s.innocent && !s.without(ctx, suspects):
			return
		default:
			s.of.quarantine(s.plan, suspects[0], refused.Cause)
			suspects, failing, row = suspects[1:], 0, row+1
		}
		tried = (failing + 1) / 2
		if failing == 0 {
			failing, tried = len(suspects), len(suspects)
		}
		if row > 1 && len(suspects) > 0 {
			failing, tried = 1, 1
		}
		s.of.aside = suspects[tried:]
		switch {
		case len(suspects) == 0:
			if s.result.Err != nil {
				_ = s.try(ctx) // the result has its error
			}
			return
		case s.tries >= maxTries:
			s.result.Err = fmt.Errorf("%d attempts were not enough to find all ports at fault, the next sync continues: %w", s.tries, last)
			return
		}
		if refused = s.try(ctx); refused != nil {
			last = refused
		}
	}
}

// try programs the plan again, and returns the error if it is a refusal.
func (s *search) try(ctx context.Context) *backend.RefusedError {
	s.tries++
	before, tried := *s.result, s.plan.Hold(s.in.held())
	*s.result = s.in.Backend.Sync(ctx, tried, before.Family)[0]
	s.of.attempted(tried, s.result)
	s.result.Duration += before.Duration
	s.result.Read = s.result.Read || before.Read
	s.result.Elements += before.Elements
	s.result.Rules += before.Rules
	s.result.Failed += before.Failed
	if before.Err != nil {
		s.result.Failed++
	}
	return s.refused()
}

func (s *search) refused() *backend.RefusedError {
	refused, _ := errors.AsType[*backend.RefusedError](s.result.Err)
	return refused
}
