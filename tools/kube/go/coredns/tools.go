//go:build tools

// Package coredns pins the coredns program that the demo and the tests run.
package coredns

import _ "github.com/coredns/coredns"
