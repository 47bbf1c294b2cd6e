"""How much memory a part takes."""

from pathlib import Path

from kubernetes.utils import parse_quantity

from tools.kube.session import ClusterSession


def resident(cluster: ClusterSession, part: str) -> dict[int, int]:
    """Bytes in memory of a part's program, by process id: a restarted one has another."""
    return _read(_pid(cluster, part), "VmRSS")


def peak(cluster: ClusterSession, part: str) -> dict[int, int]:
    """The most of it since `forget_peak`."""
    return _read(_pid(cluster, part), "VmHWM")


def forget_peak(cluster: ClusterSession, part: str) -> None:
    """The peak begins anew with what is in memory now (proc_pid_clear_refs(5))."""
    Path(f"/proc/{_pid(cluster, part)}/clear_refs").write_text("5")


def _pid(cluster: ClusterSession, part: str) -> int:
    pid = cluster.plane.processes[part].pid
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


def _read(pid: int, name: str) -> dict[int, int]:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {pid: int(lines[name].split()[0]) * 1024}


def memory_limit(cluster: ClusterSession, container: str) -> float:
    """Bytes that the chart lets a container of a Deployment have."""
    pods = [found["spec"]["template"]["spec"] for found in cluster.parts.chart if found["kind"] == "Deployment"]
    limit = next(one["resources"]["limits"]["memory"] for pod in pods for one in pod["containers"] if one["name"] == container)
    return float(parse_quantity(limit))
