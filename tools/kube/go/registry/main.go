// The registry from which a test installs a release: the one of the distribution project, with a folder as its only store. Its
// own main package links the clients of three clouds, which makes it three times as large.
package main

import (
	"os"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

func main() {
	if registry.RootCmd.Execute() != nil {
		os.Exit(1)
	}
}
