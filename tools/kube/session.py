"""A cluster as tests hold it: its kubeconfig, kubectl, the official client, and our parts by name."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from kubernetes import client, config

from tools.kube.components import Component, Find
from tools.kube.control_plane import ControlPlane
from tools.kube.parts import Pair, Parts

Found = TypeVar("Found")
LOOK = 0.1  # seconds between two looks
# How long anything may take that no test is about: only something that hangs takes so long, also where other work keeps
# all cores busy.
PATIENCE = 120.0


class KubectlFailed(Exception):
    """kubectl refused; the text is what it wrote to stderr."""


@dataclass
class ClusterSession:
    """One running cluster. Nothing of it outlives `stop`."""

    plane: ControlPlane
    find: Find
    components: dict[str, Component] = field(default_factory=dict)

    @property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig

    @cached_property
    def api(self) -> client.ApiClient:
        return config.new_client_from_config(str(self.kubeconfig))

    @cached_property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.api)

    @cached_property
    def custom(self) -> client.CustomObjectsApi:
        return client.CustomObjectsApi(self.api)

    @cached_property
    def parts(self) -> Parts:
        return Parts(self.plane, self.find)

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Run kubectl; raises KubectlFailed with its words."""
        command = [str(self.find("kubectl")), f"--kubeconfig={kubeconfig or self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise KubectlFailed(done.stderr.strip())
        return done.stdout

    def start(self, *components: Component) -> None:
        """Start parts and wait until each is ready."""
        for component in components:
            self.components[component.name] = component
            self.plane.begin_component(component)
        for component in components:
            self.plane.await_component(component)

    def kill(self, name: str) -> None:
        """End a part without a warning, as a crash would."""
        self.plane.stop_component(name, grace=0)

    def crash(self, name: str, sign: signal.Signals = signal.SIGKILL) -> None:
        """Kill the program of a part that `parts.restarted` starts again a second later, or ask it to end."""
        loop = self.plane.processes[name].pid
        for child in Path(f"/proc/{loop}/task/{loop}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), sign)

    def restart(self, name: str) -> None:
        """Start a killed part again, as it was."""
        self.start(self.components[name])

    def start_pair(self, identity: str) -> Pair:
        """A scheduler pod: extender and kube-scheduler."""
        pair, extender, scheduler = self.parts.pair(identity)
        self.start(extender, scheduler)
        return pair

    def kill_pair(self, pair: Pair) -> None:
        self.kill(pair.scheduler)
        self.kill(pair.extender)

    def log_of(self, name: str) -> str:
        path = self.plane.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        if "api" in self.__dict__:
            self.api.close()
            self.api.rest_client.pool_manager.clear()
        self.plane.stop()


def eventually(look: Callable[[], Found], what: str, seconds: float = PATIENCE) -> Found:
    """The first true answer of `look`; an AssertionError that says what was waited for when the time is up."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds} s still not: {what}; last seen: {found!r}")
        time.sleep(LOOK)


def stays(look: Callable[[], Any], rounds: int, seconds: float = 0.5) -> None:
    """The same answer in this many further looks; an AssertionError with the first difference."""
    first = look()
    for number in range(1, rounds + 1):
        time.sleep(seconds)
        now = look()
        assert now == first, f"moved in round {number}: {first!r} became {now!r}"


def names(objects: Iterable[Any]) -> list[str]:
    """Names of typed objects, sorted."""
    return sorted(item.metadata.name for item in objects)
