"""How a Kubernetes control plane and nodes come up on one machine, for the demo and the tests.

binaries    where the programs come from: a folder, the cache, PATH, a download, a build from pinned modules
pki         keys, certificates and kubeconfig files
processes   starting detached programs, knowing them again after a crash, stopping them
components  the control plane as a list of programs with arguments and readiness checks
control_plane  brings that list up in a run folder and takes it down
kwok        simulated nodes

Real nodes, which need root:

host          what the machine must have, and installing packages
buildah, base_image, images, image_store   images, and containerd roots that hold them
cgroups, namespaces                        where a cluster with real nodes lives
node, node_config, node_init               one real node
real          control plane, nodes and kwok inside one set of namespaces
stack         all of this in order, with DNS
"""
