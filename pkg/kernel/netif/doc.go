// Package netif reads the addresses of the machine's network interfaces, reports changes of them, and asks why a packet is not forwarded. It uses rtnetlink
// (rtnetlink(7)).
package netif
