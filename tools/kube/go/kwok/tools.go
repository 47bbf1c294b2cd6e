//go:build tools

// Package kwok pins the kwok program that the demo and the tests run.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
