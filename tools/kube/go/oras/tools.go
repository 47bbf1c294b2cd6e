//go:build tools

// Package oras pins the program that copies what a release holds into a registry.
package oras

import _ "oras.land/oras/cmd/oras"
