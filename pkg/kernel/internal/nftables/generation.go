package nftables

import (
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// ReadGeneration reads the message at the end of each transaction, NFT_MSG_NEWGEN: the number that the transaction led to, and
// the name, at most 15 bytes, and the process id of the program that made it.
func ReadGeneration(m netlink.Message) (number uint32, program string, process int) {
	for a := m.Attrs(); a.Next(); {
		switch a.Type {
		case unix.NFTA_GEN_ID:
			number = a.Uint32()
		case unix.NFTA_GEN_PROC_NAME:
			program = a.String()
		case unix.NFTA_GEN_PROC_PID:
			process = int(a.Uint32())
		}
	}
	return number, program, process
}
