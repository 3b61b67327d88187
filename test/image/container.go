//go:build linux

package image

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Place describes where a container runs, as the kubelet and the container runtime know it.
type Place struct {
	// RootFS is the unpacked image. Containers share the folder and must not write to it.
	RootFS string
	// Network is the path of the node's network namespace.
	Network string
	// Volumes are folders and files of this machine by the names of the pod's volumes.
	Volumes map[string]string
	// Env are the values of variables that come from the pod itself.
	Env map[string]string
}

// Command writes the bundle of a container of a pod into dir, and returns the arguments of runc that run it under that name.
func (p Place) Command(dir, name string, container *corev1.Container) ([]string, error) {
	if err := p.writeBundle(dir, container); err != nil {
		return nil, err
	}
	return []string{"--root", filepath.Join(dir, "state"), "run", "--bundle", dir, name}, nil
}

// writeBundle writes the OCI bundle of one container of a pod into dir.
func (p Place) writeBundle(dir string, container *corev1.Container) error {
	spec, err := p.spec(container)
	if err != nil {
		return fmt.Errorf("container %s: %w", container.Name, err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600)
}

// runtimeDefault are the capabilities that container runtimes grant unless a manifest drops them.
var runtimeDefault = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID",
	"SETPCAP", "SETUID", "SYS_CHROOT",
}

// spec returns the configuration of a container for runc.
func (p Place) spec(c *corev1.Container) (*specs.Spec, error) {
	security := ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
	privileged := ptr.Deref(security.Privileged, false)
	args := slices.Concat(c.Command, c.Args)
	if len(c.Command) == 0 {
		args = append([]string{"/usr/local/bin/kube-proxy"}, c.Args...) // the image's entry point
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, variable := range c.Env {
		value := variable.Value
		if variable.ValueFrom != nil {
			value = p.Env[variable.Name]
		}
		env = append(env, variable.Name+"="+value)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "$("+variable.Name+")", value)
		}
	}
	spec := &specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: p.RootFS, Readonly: ptr.Deref(security.ReadOnlyRootFilesystem, false)},
		Process: &specs.Process{
			Args: args, Env: env, Cwd: "/", Capabilities: capabilities(security, privileged),
			NoNewPrivileges: security.AllowPrivilegeEscalation != nil && !*security.AllowPrivilegeEscalation,
			User:            specs.User{UID: uint32(ptr.Deref(security.RunAsUser, 0)), GID: uint32(ptr.Deref(security.RunAsGroup, 0))}, //nolint:gosec // an ID
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.NetworkNamespace, Path: p.Network},
			},
		},
		Mounts: p.mounts(c, privileged),
	}
	if !privileged {
		spec.Linux.MaskedPaths = []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"}
		spec.Linux.ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	}
	for _, mount := range spec.Mounts {
		if mount.Source == "" {
			return nil, fmt.Errorf("the test provides no volume for the mount at %s", mount.Destination)
		}
	}
	if profile := security.SeccompProfile; profile != nil && profile.Type == corev1.SeccompProfileTypeRuntimeDefault {
		filter, err := seccomp.GetDefaultProfile(spec)
		if err != nil {
			return nil, err
		}
		spec.Linux.Seccomp = filter
	}
	return spec, nil
}

// capabilities returns the capabilities of the container: a runtime's default, changed as the manifest says.
func capabilities(security corev1.SecurityContext, privileged bool) *specs.LinuxCapabilities {
	names := slices.Clone(runtimeDefault)
	if privileged {
		names = append(names, "NET_ADMIN", "SYS_ADMIN", "SYS_MODULE", "DAC_READ_SEARCH", "SYS_PTRACE", "SYSLOG")
	}
	if change := security.Capabilities; change != nil {
		for _, drop := range change.Drop {
			names = slices.DeleteFunc(names, func(name string) bool { return drop == "ALL" || string(drop) == name })
		}
		for _, add := range change.Add {
			names = append(names, string(add))
		}
	}
	for i := range names {
		names[i] = "CAP_" + names[i]
	}
	return &specs.LinuxCapabilities{Bounding: names, Effective: names, Permitted: names}
}

// mounts returns the file systems of every container, and the pod's volumes.
func (p Place) mounts(c *corev1.Container, privileged bool) []specs.Mount {
	sysfs := []string{"nosuid", "noexec", "nodev"}
	if !privileged {
		sysfs = append(sysfs, "ro")
	}
	all := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		// A container of the host's network has the host's sysfs, which names the host's interfaces.
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: sysfs},
	}
	for _, mount := range c.VolumeMounts {
		options := []string{"rbind", "rw"}
		if mount.ReadOnly {
			options[1] = "ro"
		}
		all = append(all, specs.Mount{Destination: mount.MountPath, Type: "bind", Source: p.Volumes[mount.Name], Options: options})
	}
	return all
}
