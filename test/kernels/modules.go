package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// prepareModules decompresses the modules that the machine may load, and writes the files in which modprobe looks for what
// each needs. Both would take half a minute in the machine. It does nothing the second time.
func prepareModules(ctx context.Context, root string) error {
	folders, err := filepath.Glob(filepath.Join(root, "usr/lib/modules/*"))
	if err != nil {
		return err
	}
	if len(folders) != 1 {
		return fmt.Errorf("want the modules of one kernel below %s, got %q", root, folders)
	}
	done := filepath.Join(folders[0], "prepared")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	var compressed []string
	for _, pattern := range []string{"kernel/net", "kernel/drivers/net", "kernel/lib", "kernel/crypto", "kernel/arch/x86/crypto"} {
		found, err := modulesBelow(filepath.Join(folders[0], pattern))
		if err != nil {
			return err
		}
		compressed = append(compressed, found...)
	}
	commands := [][]string{{"chroot", root, "/sbin/depmod", filepath.Base(folders[0])}}
	if len(compressed) > 0 {
		commands = append([][]string{append([]string{"xz", "--decompress"}, compressed...)}, commands...)
	}
	for _, command := range commands {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", command[0], err, out)
		}
	}
	return os.WriteFile(done, nil, 0o600)
}

// modulesBelow returns the compressed modules below a folder.
func modulesBelow(folder string) (found []string, err error) {
	err = filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err):
			return nil
		case err == nil && strings.HasSuffix(entry.Name(), ".ko.xz"):
			found = append(found, path)
		}
		return err
	})
	return found, err
}
