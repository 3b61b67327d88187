// Package plan is part of an example.
package plan

import _ "net/netip"
