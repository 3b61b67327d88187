package packets

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// Text shows the way of one packet on a terminal of a width; 0 is none. Of the chains it shows those in which the packet matched a rule, or
// that refused it.
func Text(packet *v1alpha1.PacketTrace, width int) string {
	t := &terminal.Table{Width: width}
	t.Add("Packet:", strings.TrimSpace(packet.Protocol+" "+strings.Join(packet.Flags, ",")))
	from := packet.Source + ", on " + packet.Interface
	if packet.Interface == "" {
		from = packet.Source + ", sent by this node"
	}
	t.Add("From:", from)
	t.Add("To:", packet.Destination+", "+addressee(packet))
	if packet.TranslatedDestination != "" {
		t.Add("Endpoint:", endpointText(packet))
	}
	switch arrived := packet.Verdict == v1alpha1.PacketSent || packet.Verdict == v1alpha1.PacketDelivered; {
	case packet.TranslatedSource != "":
		t.Add("Source:", "masqueraded: the endpoint sees "+packet.TranslatedSource)
	case packet.TranslatedDestination != "" && arrived:
		t.Add("Source:", "not masqueraded: the endpoint sees "+packet.Source)
	}
	for i := range packet.Chains {
		if chain := &packet.Chains[i]; matched(chain) {
			t.Add("  "+chain.Hook, chainText(chain, packet.Service))
		}
	}
	t.Add("Verdict:", packet.Reason)
	return t.String() + "\n"
}

// addressee is whose the destination is.
func addressee(packet *v1alpha1.PacketTrace) string {
	if packet.Service == "" {
		return "which is no Service's"
	}
	service := packet.Service
	if packet.Port != "" {
		service += ":" + packet.Port
	}
	return packet.Kind + " of " + service
}

func endpointText(packet *v1alpha1.PacketTrace) string {
	text := packet.TranslatedDestination
	if packet.Location != "" {
		text += " (" + status.Where(packet.Location) + ")"
	}
	if packet.Established {
		text += ", chosen by an earlier packet of the connection: only the first one meets nat chains"
	}
	return text
}

// chainText is the path through a base chain: its table and the chains in the order in which the packet met them. In iptables mode,
// where the names of chains are hashes, the comments of rules name the Service.
func chainText(c *v1alpha1.TracedChain, service string) string {
	var path []string
	comment := ""
	for _, step := range c.Steps {
		if !slices.Contains(path, step.Chain) {
			path = append(path, step.Chain)
		}
		if service != "" && strings.HasPrefix(step.Comment, service) {
			comment = " (" + step.Comment + ")"
		}
	}
	return fmt.Sprintf("%s %s: %s%s: %s", c.Family, c.Table, strings.Join(path, " > "), comment, c.Steps[len(c.Steps)-1].Verdict)
}

// matched reports whether a packet matched a rule of a base chain, or was refused by its policy.
func matched(c *v1alpha1.TracedChain) bool {
	return c.Steps[len(c.Steps)-1].Verdict != "accept" || slices.ContainsFunc(c.Steps, func(s v1alpha1.TracedStep) bool { return s.Rule != 0 })
}
