//go:build tools

// Package helm pins the helm program that the demo and the tests run.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
