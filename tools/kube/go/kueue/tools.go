//go:build tools

// Package kueue pins the Kueue controller that the cluster tests run.
package kueue

import _ "sigs.k8s.io/kueue/cmd/kueue"
