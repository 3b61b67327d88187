package app

import _ "net/netip"
