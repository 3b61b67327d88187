// Package netif reads the addresses of the machine's network interfaces, and reports changes of them. It uses rtnetlink
// (rtnetlink(7)).
package netif
