//go:build tools

// Package etcd pins the etcd program that the demo and the tests run.
package etcd

import _ "go.etcd.io/etcd/server/v3"
