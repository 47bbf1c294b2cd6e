"""How a Kubernetes control plane and nodes come up on one machine, for the demo and the tests.

binaries    where the programs come from: a folder, the cache, PATH, a download, a build from pinned modules
pki         keys, certificates and kubeconfig files
processes   starting detached programs, knowing them again after a crash, stopping them
components  the control plane as a list of programs with arguments and readiness checks
control_plane  brings that list up in a run folder and takes it down
kwok        simulated nodes
"""
