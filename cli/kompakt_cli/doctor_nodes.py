"""Checks of nodes: other device plugins, labels, link graphs, and how containers get their GPUs. Pure functions of a reading."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kompakt_cli.doctor_reading import ClusterReading, Item, by_claims, is_part, only_reports, option, others_hand_out, readable
from kompakt_cli.finding import Finding, ok, problem, some, warning
from kompakt_core import contract
from kompakt_core.contract import gpu_holders
from kompakt_core.contract.conditions import ConditionReason, TopologyType, read_conditions
from kompakt_core.errors import InvalidInput
from kompakt_core.topology.graph import HEALTHY
from kompakt_core.topology.wire import graph_from_spec

PREFIX: Final = f"{contract.GROUP}/"
NODE_LABELS: Final = (contract.LABEL_MACHINE, contract.LABEL_RACK, contract.LABEL_BLOCK)
LOOK: Final = "kubectl get gputopology {} -o yaml"
ON_THE_NODE: Final = "nvidia-smi on that node, and its plugin's log; a GPU that is well again is offered again by itself"
CURES: Final[Mapping[str, str]] = {
    ConditionReason.BROKEN_DESCRIPTION: "correct devicePlugin.machines, or with source nvml devicePlugin.driverFolder",
    ConditionReason.CONFLICT: "keep the other plugin off the node (a node selector for each), or list devicePlugin.ownGPUs",
    ConditionReason.CDI_SPEC_MISSING: (
        "on the node: nvidia-ctk cdi generate --device-name-strategy=uuid --output=/var/run/cdi/nvidia.yaml; with containerd 1.7 "
        "and enable_cdi also devicePlugin.cdi=always"
    ),
    ConditionReason.VARIABLE_HONOURED: (
        "set accept-nvidia-visible-devices-envvar-when-unprivileged = false in /etc/nvidia-container-runtime/config.toml and "
        "devicePlugin.driverFolder, then restart the node's device plugin (docs/security.md, GPUs of others)"
    ),
    ConditionReason.NOT_PROBED: "kubectl describe pod of the node's device plugin: its container isolation-probe has to start",
}


def other_plugins(reading: ClusterReading) -> Iterator[Finding]:
    """Two plugins must not hand out one GPU."""
    if only_reports(reading):
        yield ok("other device plugins", f"somebody else hands out GPUs, as {resource(reading)}; kompakt only reports")
        return
    if by_claims(reading):
        yield ok("other device plugins", "a DRA driver hands out GPUs, by the claims of kompakt's planner")
        return
    ours = resource(reading)
    shared = [one for one in readable(reading.nodes) if _offers(one, ours) and _others(one, ours)]
    conditions = {one["metadata"]["name"]: _conditions(one) for one in readable(reading.topologies)}
    meant = [_name(one) for one in shared if _own_only(conditions.get(_name(one), {}))]
    clash = [one for one in shared if _name(one) not in meant]
    told = [name for name, found in conditions.items() if TopologyType.CONFLICT in found and found[TopologyType.CONFLICT].true]
    names = sorted({*map(_name, clash), *told})
    if names:
        said = f"another driver offers GPUs of nodes that are kompakt's: {some(names)}{_by(clash, ours)}"
        yield problem("other device plugins", said, CURES[ConditionReason.CONFLICT])
    elif running := sorted(_foreign(reading)):
        said = f"{some(running)} runs on nodes with {ours}, and offers nothing there yet"
        yield warning("other device plugins", said, CURES[ConditionReason.CONFLICT])
    else:
        beside = f"; {some(meant)} share GPUs by devicePlugin.ownGPUs" if meant else ""
        yield ok("other device plugins", f"no GPU is offered twice{beside}")


def _by(nodes: list[Item], ours: str) -> str:
    resources = sorted({name for node in nodes for name in _others(node, ours)})
    return f" ({', '.join(resources)} beside {ours})" if resources else ""


def resource(reading: ClusterReading) -> str:
    """By which name kompakt offers GPUs there; its default where the device plugin may not be looked at."""
    return option(reading, "--resource=") or contract.RESOURCE


def _offers(node: Item, ours: str) -> bool:
    """Whether kompakt's plugin offers GPUs there, or did: kubelet keeps a resource with 0 when its plugin goes."""
    return ours in _capacity(node)


def _others(node: Item, ours: str) -> list[str]:
    capacity = _capacity(node)
    known = (name for name in capacity if name in contract.OTHER_RESOURCES or name.startswith(contract.OTHER_MIG_PREFIX))
    return [name for name in known if name != ours and str(capacity[name]) != "0"]


def _own_only(conditions: Mapping[str, Any]) -> bool:
    return TopologyType.CONFLICT in conditions and conditions[TopologyType.CONFLICT].reason == ConditionReason.OWN_GPUS_ONLY


def _foreign(reading: ClusterReading) -> Iterator[str]:
    """DaemonSets of NVIDIA's device plugin with a pod on a node of ours."""
    ours = {_name(one) for one in readable(reading.nodes) if _offers(one, resource(reading))}
    sets = {one["metadata"]["uid"]: one for one in readable(reading.daemonsets) if _is_nvidias(one)}
    for pod in readable(reading.pods):
        owners = {one["uid"] for one in pod["metadata"].get("ownerReferences") or ()}
        for uid in owners & sets.keys():
            if pod["spec"].get("nodeName") in ours:
                yield f"DaemonSet {sets[uid]['metadata']['namespace']}/{_name(sets[uid])}"


def _is_nvidias(daemonset: Item) -> bool:
    containers = daemonset["spec"]["template"]["spec"]["containers"]
    return any("nvidia/k8s-device-plugin" in one["image"] or "nvidia-device-plugin" in one["name"] for one in containers)


def labels(reading: ClusterReading) -> Iterator[Finding]:
    """Labels of nodes that kompakt does not know, and machines that nobody described."""
    nodes = readable(reading.nodes)
    known = {*NODE_LABELS, *_set_labels(reading)}
    odd = {key for one in nodes for key in one["metadata"].get("labels") or {} if key.startswith(PREFIX) and key not in known}
    if odd:
        cure = f"kubectl label node NODE {min(odd)}- removes one; known are {', '.join(sorted(known))}"
        yield warning("node labels", f"labels that kompakt does not read: {some(sorted(odd))}", cure)
    missing = sorted(_undescribed(reading)) if not reading.lacking("machines") else []
    if missing:
        cure = "kubectl label --overwrite node NODE kompakt.dev/machine=KEY, or add the key to devicePlugin.machines"
        yield problem("machines", f"devicePlugin.machines has no such key: {some(missing)}", cure)
    if not (odd or missing):
        yield ok("node labels", "all labels of kompakt.dev are known")


def _set_labels(reading: ClusterReading) -> list[str]:
    """Keys that chart value consolidation.labels names."""
    pods = [one["spec"]["template"]["spec"] for one in readable(reading.deployments) if is_part(one, "scheduler")]
    words = [word for pod in pods for one in pod["containers"] for word in one.get("args") or ()]
    return [word.partition("=")[2] for word in words if word.startswith(("--rack-label=", "--block-label="))]


def _undescribed(reading: ClusterReading) -> Iterator[str]:
    """Nodes whose machine stands under no key, where descriptions are texts."""
    keys = {key for one in readable(reading.machines) for key in one.get("data") or {}}
    if not readable(reading.machines) or source(reading) != "text":
        return
    for one in readable(reading.nodes):
        machine = (one["metadata"].get("labels") or {}).get(contract.LABEL_MACHINE)
        if machine and machine not in keys:
            yield f"{_name(one)} ({machine})"


def source(reading: ClusterReading) -> str:
    """Where link graphs come from, by the device plugin's arguments; empty where there is none."""
    return option(reading, "--source=")


def gpu_nodes(reading: ClusterReading) -> Iterator[Finding]:
    """Nodes with GPUs on which no plugin of kompakt speaks."""
    if by_claims(reading):
        yield _reported(reading)
        return
    nodes, ours = readable(reading.nodes), resource(reading)
    silent = sorted(_name(one) for one in nodes if _announces(one) and not _offers(one, ours) and not _others(one, ours))
    if silent and only_reports(reading):
        yield warning("GPU nodes", f"nobody offers {ours} there: {some(silent)}", "see to the plugin that hands out GPUs there")
    elif silent:
        cure = (
            "kubectl get pods -n "
            + reading.release
            + " -o wide -l app.kubernetes.io/component=device-plugin: does one run there? "
            "See devicePlugin.nodeSelector and devicePlugin.tolerations"
        )
        yield problem("GPU nodes", f"have GPUs and offer no {ours}: {some(silent)}", cure)
    elif offering := sum(_offers(one, ours) for one in nodes):
        yield ok("GPU nodes", f"{offering} nodes offer {ours}")
    else:
        cure = "install the device plugin on nodes with GPUs: docs/device-plugin.md; for a trial label a node kompakt.dev/machine"
        yield warning("GPU nodes", f"no node offers {ours}", cure)


def _reported(reading: ClusterReading) -> Finding:
    """Where GPUs come by claims no node offers any by number."""
    told = {_name(one) for one in readable(reading.topologies)}
    missing = sorted(_name(one) for one in readable(reading.nodes) if _announces(one) and _name(one) not in told)
    if missing:
        look = f"kubectl get pods -n {reading.release} -o wide -l app.kubernetes.io/component=device-plugin: does one run there?"
        return problem("GPU nodes", f"have GPUs and no GPUTopology, so nothing is planned there: {some(missing)}", look)
    return ok("GPU nodes", f"{len(told)} nodes have GPUs, given by ResourceClaims")


def _announces(node: Item) -> bool:
    found = node["metadata"].get("labels") or {}
    return any(found.get(label, "false") not in ("", "false") for label in (contract.LABEL_MACHINE, contract.NVIDIA_GPU_PRESENT))


def link_graphs(reading: ClusterReading) -> Iterator[Finding]:
    """Whether each node with our GPUs has a GPUTopology that can be used."""
    topologies, ours = {_name(one): one for one in readable(reading.topologies)}, resource(reading)
    nodes = [one for one in readable(reading.nodes) if _offers(one, ours)]
    offered = "" if others_hand_out(reading) else ours
    found = [one for node in nodes for one in _graph(node, topologies.get(_name(node)), offered)]
    yield from found
    if not any(one.check == "link graphs" for one in found):
        yield ok("link graphs", f"{len(topologies)} nodes report theirs")


def _graph(node: Item, topology: Item | None, offered_as: str) -> Iterator[Finding]:
    name, look = _name(node), LOOK.format(_name(node))
    log = "kubectl logs of the node's device plugin says why; a restart of that pod writes the object anew"
    if topology is None:
        yield problem("link graphs", f"{name} offers GPUs and has no GPUTopology: no pod is placed there", log)
        return
    try:
        graph = graph_from_spec(topology.get("spec") or {})
    except InvalidInput as error:
        cure = f"kubectl delete gputopology {name}, which the device plugin makes anew; if it stays so: {look}, its log"
        yield problem("link graphs", f"{name}: the GPUTopology cannot be read: {error}", cure)
        return
    healthy = sum(gpu.health == HEALTHY for gpu in graph.gpus)
    offered = int((node.get("status") or {}).get("allocatable", {}).get(offered_as, 0)) if offered_as else healthy
    if (topology["spec"].get("nodeUID"), healthy) != (node["metadata"]["uid"], offered):
        said = f"{name}: the GPUTopology is out of step with the Node ({healthy} healthy GPUs there, {offered} offered here)"
        yield problem("link graphs", f"{said}: no pod is placed there", log)
    holders = gpu_holders.readable((topology.get("status") or {}).get("held"))
    if not holders.complete:
        cure = f"kubectl edit gputopology {name} --subresource=status removes the entry (docs/device-plugin.md)"
        yield problem("link graphs", f"{name}: {holders.flaws[0]}: no pod is placed there", cure)
    yield from _states(name, _conditions(topology))


def _states(name: str, conditions: Mapping[str, Any]) -> Iterator[Finding]:
    """Ready and Degraded; the others have checks of their own."""
    ready, degraded = conditions.get(TopologyType.READY), conditions.get(TopologyType.DEGRADED)
    if ready is None:
        yield warning("link graphs", f"{name}: no condition Ready", LOOK.format(name))
    elif not ready.true and ready.reason != ConditionReason.CONFLICT:
        yield problem("link graphs", f"{name}: {ready.reason}: {ready.message}", CURES.get(ready.reason, LOOK.format(name)))
    if degraded and degraded.true and degraded.reason != ConditionReason.CDI_SPEC_MISSING:
        yield warning("GPUs", f"{name}: {degraded.reason}: {degraded.message}", ON_THE_NODE)


def container_toolkit(reading: ClusterReading) -> Iterator[Finding]:
    """How containers get their GPUs: CDI specifications, and whether a variable shows GPUs to others."""
    conditions = {_name(one): _conditions(one) for one in readable(reading.topologies)}
    degraded, isolated = TopologyType.DEGRADED, TopologyType.ISOLATED
    missing = [name for name, found in conditions.items() if _holds(found, degraded, "True", ConditionReason.CDI_SPEC_MISSING)]
    shown = [name for name, found in conditions.items() if _holds(found, isolated, "False")]
    unknown = [name for name, found in conditions.items() if _holds(found, isolated, "Unknown")]
    check, found = "container toolkit", list[Finding]()
    if missing:
        cure = CURES[ConditionReason.CDI_SPEC_MISSING]
        found.append(problem(check, f"no CDI specification names GPUs of {some(missing)}, which nobody gets", cure))
    if shown:
        said = f"containers that ask by {contract.ENV_NVIDIA_VISIBLE} are shown GPUs of others on {some(shown)}"
        found.append(warning(check, said, CURES[ConditionReason.VARIABLE_HONOURED]))
    if unknown:
        said = f"nobody knows yet whether {some(unknown)} show GPUs of others"
        found.append(warning(check, said, CURES[ConditionReason.NOT_PROBED]))
    if option(reading, "--cdi=") == "never":
        said = f"devicePlugin.cdi is never: a pod's {contract.ENV_NVIDIA_VISIBLE} may show it GPUs of others"
        found.append(warning(check, said, "set devicePlugin.cdi=auto where users do not trust each other"))
    yield from found or [ok(check, _told(source(reading)))]


def _told(source: str) -> str:
    if source == "nvml":
        return "every GPU has its CDI specification"
    return "nothing to check: link graphs come from descriptions, not from a driver"


def _holds(conditions: Mapping[str, Any], kind: str, status: str, reason: str = "") -> bool:
    found = conditions.get(kind)
    return found is not None and found.status == status and reason in ("", found.reason)


def _conditions(item: Item) -> Mapping[str, Any]:
    return read_conditions((item.get("status") or {}).get("conditions"))


def _capacity(node: Item) -> Mapping[str, Any]:
    return (node.get("status") or {}).get("capacity") or {}


def _name(item: Item) -> str:
    return str(item["metadata"]["name"])
