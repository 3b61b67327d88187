package inspect

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// Qualified adds a namespace to the text of a destination that is the name of a Service without one: NAME[:PORT[/PROTOCOL]], or
// svc/NAME as kubectl writes it. It returns other texts as they are, also URLs and DNS names.
func Qualified(namespace, text string) string {
	for _, kind := range []string{"svc/", "service/", "services/"} {
		if name, is := strings.CutPrefix(text, kind); is && !strings.Contains(name, "/") {
			return namespace + "/" + name
		}
	}
	name, port, hasPort := strings.Cut(text, ":")
	_, err := netip.ParseAddr(name)
	if text == "" || err == nil || strings.ContainsAny(name, "/[].") || hasPort && (strings.Contains(port, ":") || strings.HasPrefix(port, "//")) {
		return text
	}
	return namespace + "/" + text
}

// Names returns the names of Services, as NAMESPACE/NAME.
func Names(list *v1alpha1.ServiceList) (names []string) {
	for i := range list.Items {
		names = append(names, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	return names
}

// ServiceNames returns the names of all Services; none if they cannot be read.
func ServiceNames(ctx context.Context, from Reader) []string {
	list, err := from.Services(ctx, status.Filter{}, false)
	if err != nil {
		return nil
	}
	return Names(list)
}

// Namespaces returns those that have Services; none if they cannot be read.
func Namespaces(ctx context.Context, from Reader) (names []string) {
	for _, name := range ServiceNames(ctx, from) {
		namespace, _, _ := strings.Cut(name, "/")
		names = append(names, namespace)
	}
	return slices.Compact(names)
}
