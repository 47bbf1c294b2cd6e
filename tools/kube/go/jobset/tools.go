//go:build tools

// Package jobset pins the JobSet controller that the cluster tests run.
package jobset

import _ "sigs.k8s.io/jobset"
