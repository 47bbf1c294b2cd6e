//go:build tools

// Package nvidia pins the programs of nvidia that the node tests run.
package nvidia

import (
	_ "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-container-runtime"
)
