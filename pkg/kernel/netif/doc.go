// Package netif is the door to the addresses of the machine's network interfaces: what they are, and when they change. It
// speaks rtnetlink (rtnetlink(7)).
package netif
