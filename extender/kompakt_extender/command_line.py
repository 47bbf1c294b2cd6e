"""The command line of the extender."""

import argparse
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kompakt_core import contract
from kompakt_core.contract.gpu_claim import ClaimedDevices
from kompakt_core.errors import InvalidInput
from kompakt_core.job.model import MAX_WAIT_SECONDS
from kompakt_core.placement.model import Level
from kompakt_core.policy.levels import parse_factors
from kompakt_core.policy.model import Timers
from kompakt_extender.consolidation import DEFAULT, POLICIES
from kompakt_extender.kube_scheduler import PORT

_DOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Settings:
    """The command line."""

    kubeconfig: str | None
    namespace: str
    identity: str
    verbs_port: int
    health_port: int
    health_address: str
    scheduler_port: int
    log_level: str
    rack_label: str
    block_label: str
    consolidation: str
    wait_seconds: Timers
    level_factors: Mapping[Level, float]
    overtaken_at_most: int
    preemption: bool
    reserved_seconds: int
    bare_pods: bool
    plain_metrics: bool
    resource: str
    explain_only: bool
    device_class: str
    dra_driver: str
    device_key: str
    keep_nodes_after: int

    @property
    def devices(self) -> ClaimedDevices | None:
        """Whose devices pods get by ResourceClaims; None where a device plugin hands GPUs out."""
        return ClaimedDevices(self.device_class, self.dra_driver, self.device_key) if self.device_class else None


def parse(arguments: Sequence[str]) -> Settings:
    """Read the command line; exits with a sentence on a wrong one."""
    made = parser()
    found = Settings(**vars(made.parse_args(arguments)))
    if bool(found.device_class) != bool(found.dra_driver):
        made.error("--device-class and --dra-driver belong together: a class of devices, and the driver that publishes them")
    return found


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="kompakt-extender", description="Scheduler extender and gang planner of kompakt.")
    made.add_argument("--kubeconfig", help="default: the cluster this process runs in")
    made.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", "kompakt-system"),
        help=f"where kube-scheduler's Lease {contract.SCHEDULER_LEASE} lies (default: POD_NAMESPACE, else kompakt-system)",
    )
    made.add_argument(
        "--identity",
        default=socket.gethostname(),
        help="hostname of the kube-scheduler that calls us, as in its Lease (default: ours)",
    )
    made.add_argument("--verbs-port", type=_port, default=contract.VERBS_PORT, help="on 127.0.0.1 (default: %(default)s)")
    made.add_argument("--health-port", type=_port, default=contract.HEALTH_PORT, help="health, metrics, explain")
    made.add_argument("--health-address", default="0.0.0.0", help="address of the health port (default: %(default)s)")
    made.add_argument(
        "--plain-metrics",
        type=_true,
        default=False,
        metavar="true|false",
        help="whether /metrics answers without a token whose account may get it (default: false)",
    )
    made.add_argument("--scheduler-port", type=_port, default=PORT, help="secure port of the kube-scheduler beside us")
    made.add_argument(
        "--resource",
        default=contract.RESOURCE,
        choices=contract.RESOURCES,
        help="by which name GPUs are offered and asked for (default: %(default)s)",
    )
    made.add_argument(
        "--explain-only",
        type=_true,
        default=False,
        metavar="true|false",
        help="whether this process explains and decides nothing: no kube-scheduler is beside it (default: false)",
    )
    _add_claims(made)
    made.add_argument("--rack-label", default=contract.LABEL_RACK, help="node label that names the rack (default: %(default)s)")
    made.add_argument("--block-label", default=contract.LABEL_BLOCK, help="node label that names the block")
    _add_waiting(made)
    made.add_argument(
        "--keep-nodes-after",
        type=_whole,
        default=0,
        metavar="SECONDS",
        help="for how long GPUs of a node must be reserved until cluster-autoscaler is told to keep the node; 0: it is not told",
    )
    made.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return made


def _add_claims(made: argparse.ArgumentParser) -> None:
    """Whose devices pods get by ResourceClaims: the chart's values `resourceClaims`."""
    made.add_argument(
        "--device-class",
        default="",
        type=_domain,
        help="DeviceClass of the GPUs that pods get by ResourceClaims; this process then holds the Lease itself, beside no "
        "kube-scheduler (default: pods get their GPUs by a device plugin)",
    )
    made.add_argument("--dra-driver", default="", type=_domain, help="name of the driver that publishes these GPUs")
    made.add_argument(
        "--device-key",
        default="uuid",
        type=_identifier,
        help="attribute by which that driver publishes a GPU's UUID (default: %(default)s)",
    )


def _add_waiting(made: argparse.ArgumentParser) -> None:
    """How gangs wait: the chart's values `consolidation`."""
    made.add_argument(
        "--consolidation",
        default=DEFAULT.name,
        choices=POLICIES,
        help="how gangs of consolidation mode Default wait for a better level (default: %(default)s)",
    )
    made.add_argument(
        "--wait-seconds",
        type=_timers,
        default=DEFAULT.timers,
        metavar="MACHINE,RACK,BLOCK",
        help="for fixed: seconds to insist on each level, all from the same moment (default: 600,1800,3600)",
    )
    made.add_argument(
        "--level-factors",
        type=_factors,
        default=DEFAULT.factors,
        metavar="machine=M,rack=R,block=B,cluster=C",
        help="for kompakt: cost of communication by level, against a rack (default: machine=0.05,rack=1,block=2,cluster=4)",
    )
    made.add_argument(
        "--overtaken-at-most",
        type=_whole,
        default=DEFAULT.overtaken_at_most,
        metavar="GANGS",
        help="so many later gangs may go before one that waits; then GPUs are reserved for it (default: %(default)s)",
    )
    made.add_argument(
        "--reserved-seconds",
        type=_seconds,
        default=DEFAULT.reserved_seconds,
        metavar="SECONDS",
        help="reserved GPUs fall when nothing that is waited for has become free for so long (default: %(default)s)",
    )
    made.add_argument(
        "--preemption",
        type=_true,
        default=DEFAULT.preemption,
        metavar="true|false",
        help="whether running jobs and plain pods of lower priority end for a gang without a place (default: true)",
    )
    made.add_argument(
        "--bare-pods",
        type=_true,
        default=DEFAULT.bare_pods,
        metavar="true|false",
        help="whether plain pods that no controller makes anew end for a gang too (default: false)",
    )


def _true(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r}: right would be true or false")
    return text == "true"


def _domain(text: str) -> str:
    if text and (len(text) > 253 or not _DOMAIN.fullmatch(text)):
        raise argparse.ArgumentTypeError(f"{text!r}: right would be a name such as gpu.nvidia.com")
    return text


def _identifier(text: str) -> str:
    if not _IDENTIFIER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: right would be the name of an attribute such as uuid, without a domain")
    return text


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; right would be 1 to 65535")
    return int(text)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r}: right would be a whole number from 0 up")
    return int(text)


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 0 < int(text) <= MAX_WAIT_SECONDS):
        raise argparse.ArgumentTypeError(f"{text!r}: right would be a whole number from 1 to {MAX_WAIT_SECONDS}")
    return int(text)


def _timers(text: str) -> Timers:
    parts = text.split(",")
    seconds = [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 10]
    if len(parts) != 3 or len(seconds) != 3 or seconds != sorted(seconds) or seconds[-1] > MAX_WAIT_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r}: right would be three whole numbers such as 600,1800,3600, none below the last"
        )
    return Timers(*seconds)


def _factors(text: str) -> Mapping[Level, float]:
    try:
        return parse_factors(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error)) from error
