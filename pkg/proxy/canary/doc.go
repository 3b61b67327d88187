// Package canary tries the rules: once a second it connects, in each family, to a cluster IP that no Service has (plan.Options.Canary)
// and whose endpoint it is itself. If that fails twice, it asks for a trace of the second connection, which says why. Between that it
// asks for checks of what it cannot try, because only packets that the node forwards meet it.
package canary
