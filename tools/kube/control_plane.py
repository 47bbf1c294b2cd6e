"""A control plane without root: every program a plain process on 127.0.0.1, all files in one run folder.

The run folder holds pki/, one log per program, records.json (which processes are ours) and, once everything
answers, up.json (what is up). A folder with records but without up.json is what a crashed start left behind.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kompakt_client.errors import ApiError
from kompakt_client.transport import connect
from tools.kube.components import Addresses, Component, Find, Keys, answers, control_plane, make_keys
from tools.kube.ports import free_ports
from tools.kube.processes import Launch, Process, last_lines, launch_detached, read_records, stop, wait_until, write_records

STATELESS_GRACE = 3.0  # seconds for programs that hold nothing but their lease
ATTEMPTS = 3  # starts with new ports when somebody took one


class StartFailed(Exception):
    """A program of the cluster did not start; the message holds the end of its log."""


class AlreadyUp(Exception):
    """A cluster runs in that folder already."""


Say = Callable[[str], None]


@dataclass(slots=True)
class ControlPlane:
    """A running control plane. `start_component` adds further programs that share its records and its end."""

    folder: Path
    addresses: Addresses
    keys: Keys
    launch: Launch = launch_detached
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def kubeconfig(self) -> Path:
        return self.keys.admin

    def start_component(self, component: Component) -> Process:
        """Start one program and wait until it is ready; StartFailed with the end of its log otherwise."""
        process = self.begin_component(component)
        self.await_component(component)
        return process

    def begin_component(self, component: Component) -> Process:
        """Start one program without waiting. The record is on disk before the next program starts."""
        launched = self.launch(component.argv, self.folder / f"{component.name}.log")
        process = replace(launched, name=component.name)
        self.processes[component.name] = process
        self._record()
        return process

    def await_component(self, component: Component) -> None:
        process = self.processes[component.name]
        wait_until(lambda: component.ready() or not process.alive(), component.seconds)
        if not component.ready():
            state = "ended" if not process.alive() else f"was not ready after {component.seconds:.0f} s"
            raise StartFailed(f"{component.name} {state}; its log {process.log} ends with:\n{last_lines(Path(process.log))}")

    def stop_component(self, name: str, grace: float = STATELESS_GRACE) -> None:
        """Stop one program; `grace` 0 kills it."""
        process = self.processes.pop(name, None)
        if process is not None:
            stop([process], grace)
            self._record()

    def stop(self) -> None:
        """Stop everything and remove the folder."""
        stop_in_order(list(self.processes.values()))
        self.processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _record(self) -> None:
        write_records(self.folder / "records.json", self.processes.values())


def start(folder: Path, find: Find, *, launch: Launch = launch_detached, say: Say = lambda text: None) -> ControlPlane:
    """A control plane in `folder`, ready for pods in the namespace default.

    Raises AlreadyUp where one runs there, StartFailed where a program does not start. Leftovers of a crashed run
    in that folder are removed first.
    """
    if is_up(folder):
        raise AlreadyUp(f"a cluster runs in {folder} already")
    remove_leftovers(folder, say)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _start_once(folder, find, launch, say)
        except StartFailed as error:
            remove_leftovers(folder, lambda text: None)
            if attempt == ATTEMPTS or "address already in use" not in str(error):
                raise
            say("a chosen port was taken meanwhile; trying others")
    raise AssertionError("unreachable")


def _start_once(folder: Path, find: Find, launch: Launch, say: Say) -> ControlPlane:
    folder.mkdir(parents=True, mode=0o700)
    etcd, peer, api, manager, scheduler = free_ports(5)
    addresses = Addresses(etcd=etcd, etcd_peer=peer, api=api, controller_manager=manager, scheduler=scheduler)
    plane = ControlPlane(folder, addresses, make_keys(folder / "pki", addresses), launch)
    began = time.monotonic()
    components = control_plane(find, addresses, plane.keys, folder)
    for group in start_groups(components):
        for component in group:
            plane.begin_component(component)
        for component in group:
            plane.await_component(component)
            say(f"{component.name} ready after {time.monotonic() - began:.1f} s")
    await_service_account(plane)
    say(f"namespace default accepts pods after {time.monotonic() - began:.1f} s")
    (folder / "up.json").write_text(json.dumps({"addresses": asdict(addresses), "kubeconfig": str(plane.kubeconfig)}, indent=1))
    return plane


def start_groups(components: Sequence[Component]) -> list[list[Component]]:
    """etcd, then the API server, then its clients together: they do not need each other."""
    return [[components[0]], [components[1]], list(components[2:])]


def await_service_account(plane: ControlPlane, seconds: float = 30) -> None:
    """Pods are refused before the controller manager has made the namespace's ServiceAccount."""
    api = connect(plane.kubeconfig)

    def exists() -> bool:
        try:
            return bool(api.get("/api/v1/namespaces/default/serviceaccounts/default"))
        except ApiError:
            return False

    found = wait_until(exists, seconds)
    if not found:
        raise StartFailed(f"no ServiceAccount default after {seconds:.0f} s; see {plane.folder}/kube-controller-manager.log")


def stop_in_order(processes: Sequence[Process]) -> None:
    """Clients first, then the API server, etcd last.

    The other way round the API server waits more than 10 s for an etcd that is gone. Its own polite end would wait
    for every watcher; as the cluster's data is thrown away, it and etcd are killed.
    """
    storage = {"kube-apiserver", "etcd"}
    stop([p for p in processes if p.name not in storage], STATELESS_GRACE)
    stop([p for p in processes if p.name == "kube-apiserver"], 0)
    stop([p for p in processes if p.name == "etcd"], 0)


def is_up(folder: Path) -> bool:
    """Whether all programs recorded there run and the API server answers."""
    document = read_up(folder)
    records = read_records(folder / "records.json")
    if document is None or not records:
        return False
    return all(process.alive() for process in records) and answers(f"{Addresses(**document['addresses']).server}/readyz")


def read_up(folder: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((folder / "up.json").read_text()))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def read_kubeconfig(folder: Path) -> Path:
    """The administrator's kubeconfig file of a cluster that is up. Raises StartFailed where none is."""
    document = read_up(folder)
    if document is None:
        raise StartFailed(f"no cluster is up in {folder}")
    return Path(str(document["kubeconfig"]))


def remove_leftovers(folder: Path, say: Say) -> bool:
    """Stop what runs from that folder and delete it; True if there was anything."""
    if not folder.exists():
        return False
    alive = [process for process in read_records(folder / "records.json") if process.alive()]
    if alive:
        say(f"stopping {len(alive)} programs in {folder}: {', '.join(process.name for process in alive)}")
    stop_in_order(alive)
    shutil.rmtree(folder)
    return True


def run_folder(name: str) -> Path:
    """Where the cluster of that name keeps its files: a folder of the user's own under the system's temporary folder."""
    base = Path(tempfile.gettempdir()) / f"kompakt-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise StartFailed(f"{base} belongs to somebody else; remove it or set TMPDIR to a folder of your own")
    return base / name
