"""Parts of kompakt as an older state of the project has them: its code as processes, under today's definitions and rights."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tools.kube.components import Component
from tools.kube.parts import BIN, Pair, Parts, render
from tools.kube.session import ClusterSession

PACKAGES = ("core", "client", "operator", "extender", "device-plugin")
PROGRAMS = ("kompakt-operator", "kompakt-extender")


@dataclass(frozen=True)
class OlderParts:
    """`tree` holds the older files; `settings` are values of its chart. Third-party packages are today's."""

    cluster: ClusterSession
    tree: Path
    settings: Mapping[str, str]

    def operator(self) -> Component:
        return self._as_then(self.cluster.parts.operator())

    def pair(self, identity: str) -> tuple[Pair, Component, Component]:
        """A scheduler pod as the older chart configures both."""
        chart = render(self.cluster.find, self.settings, self.tree)
        pair, extender, scheduler = Parts(self.cluster.plane, self.cluster.find, chart).pair(identity)
        return pair, self._as_then(extender), scheduler

    def plugins(self) -> Component:
        return self._as_then(self.cluster.parts.simulated_plugins())

    def version(self, module: str) -> str:
        """Where the older programs take a module from."""
        code = f"import {module}; print({module}.__file__)"
        return subprocess.run([*self._prefix(), sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    def _as_then(self, component: Component) -> Component:
        """The same program from the older files; arguments that came later are left out, as the older chart has them not."""
        program = next((word for word in component.argv if Path(word).name in PROGRAMS and word.startswith(str(BIN))), "")
        known = self._help(program) if program else ""
        argv = [word for word in component.argv if not (program and word.startswith("--")) or word.partition("=")[0] in known]
        return replace(component, argv=(*self._prefix(), *argv))

    def _help(self, program: str) -> str:
        return subprocess.run([*self._prefix(), program, "--help"], check=True, capture_output=True, text=True).stdout

    def _prefix(self) -> tuple[str, ...]:
        path = ":".join(str(self.tree / package) for package in PACKAGES)
        return ("env", f"--chdir={self.tree}", f"PYTHONPATH={path}")
