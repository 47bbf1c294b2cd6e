"""What client libraries for Kubernetes cost and can: `python -m benchmarks.client_libraries`, some two minutes and a network.

Each library gets an environment of its own that is thrown away. An API server of a few lines, over TLS, serves one list of pods
and one watch, and writes down who asks. What it counts:

1. memory after the import, and after one list of 500 pods and one watch of 2,000 events; processor time of both
2. whether it gets in by exec plugin (client.authentication.k8s.io/v1), and runs the plugin again when the credential has expired
3. whether it gets in by a token file, and after its content has changed
4. whether it shows a client certificate
"""

import base64
import json
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import yaml

from tools.kube import pki

ROOT: Final = Path(__file__).resolve().parents[1]
LIBRARIES: Final = {
    "lightkube": ("lightkube",),
    "kr8s": ("kr8s",),
    "kubernetes_asyncio": ("kubernetes_asyncio",),
    "kubernetes": ("kubernetes",),
    "kompakt_client": ("urllib3", "msgspec", "PyYAML"),
    "aiohttp": ("aiohttp",),
}
UPKEEP: Final = {"kompakt_client": "urllib3"}
PODS, EVENTS = 500, 2000
PROBE_SECONDS: Final = 60
# A plugin that is run again has another token each time; each is good for an hour or has expired already.
PLUGIN: Final = """import json, sys
from pathlib import Path
runs = Path(sys.argv[0] + ".runs")
number = len(runs.read_text()) if runs.exists() else 0
runs.write_text("x" * (number + 1))
status = {"token": f"token-{number}", "expirationTimestamp": sys.argv[1]}
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


@dataclass
class Seen:
    """Who asked: name on the certificate and token. Only `token` gets in, where it is not empty."""

    token: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)


def pod(name: str, version: int) -> dict[str, Any]:
    """About 2.5 kB, as a small pod is."""
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    environment = [{"name": f"VARIABLE_{number}", "value": "x" * 20} for number in range(30)]
    container = {"name": "c", "image": "example/training:1", "env": environment}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, "labels": {"app": "a"}},
        "spec": {"containers": [container], "nodeName": "node-1"},
        "status": {"phase": "Running"},
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: Seen

    def do_GET(self) -> None:
        certificate: dict[str, Any] = getattr(self.connection, "getpeercert", dict)() or {}
        names = dict(pair for group in certificate.get("subject", ()) for pair in group)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        self.seen.asked.append((names.get("commonName", ""), token))
        if self.seen.token and token != self.seen.token:
            self._send({"kind": "Status", "code": 401, "message": "Unauthorized"}, 401)
        elif "watch=" in self.path:
            self._watch()
        else:
            self._send(self._found())

    def _found(self) -> dict[str, Any]:
        path = "/" + self.path.partition("?")[0].strip("/")
        if path == "/api/v1":
            pods = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["list", "watch"]}
            return {"kind": "APIResourceList", "groupVersion": "v1", "resources": [pods]}
        if path in ("/api", "/apis"):
            return {"kind": "APIVersions", "versions": ["v1"], "groups": []}
        if path == "/version":
            return {"major": "1", "minor": "36", "gitVersion": "v1.36.0"}
        items = [pod(f"pod-{number}", number) for number in range(PODS)]
        return {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": items}

    def _send(self, body: dict[str, Any], code: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _watch(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(EVENTS):
            name = "last" if number == EVENTS - 1 else f"pod-{number % PODS}"
            line = json.dumps({"type": "MODIFIED", "object": pod(name, 1000 + number)}).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up early is no trouble."""


@contextmanager
def served(seen: Seen, context: ssl.SSLContext | None) -> Iterator[str]:
    server = Quiet(("127.0.0.1", 0), type("Bound", (Handler,), {"seen": seen}))
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@dataclass(frozen=True)
class Bench:
    """One library in its environment; `folder` is thrown away."""

    library: str
    folder: Path
    authority: pki.Authority

    @property
    def python(self) -> Path:
        return self.folder / "environment" / "bin" / "python"

    def install(self) -> float:
        """Installed size in MB, without what every environment has."""
        self._uv("venv", "--quiet", "--python", sys.executable, str(self.folder / "environment"))
        self._uv("pip", "install", "--quiet", "--python", str(self.python), *LIBRARIES[self.library])
        packages = next((self.folder / "environment" / "lib").glob("python*/site-packages"))
        size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / 1e6
        if self.library in UPKEEP:
            (packages / "kompakt.pth").write_text(f"{ROOT / 'core'}\n{ROOT / 'client'}\n")
        return size

    def version(self) -> str:
        package = UPKEEP.get(self.library, self.library)
        shown = self._uv("pip", "show", "--quiet", "--python", str(self.python), package) or self._uv(
            "pip", "show", "--python", str(self.python), package
        )
        return re.search(r"Version: (\S+)", shown).group(1)  # type: ignore[union-attr]

    def _uv(self, *arguments: str) -> str:
        done = subprocess.run([str(ROOT / ".venv/bin/uv"), *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    def weigh(self) -> dict[str, float]:
        with served(Seen(), None) as server:
            shown, trouble = self._start("weigh", self._kubeconfig(server, {"token": "t"})).communicate(timeout=PROBE_SECONDS)
        if not shown:
            raise SystemExit(f"{self.library}: {trouble[-2000:]}")
        found: dict[str, float] = json.loads(shown)
        return found

    def exec_plugin(self) -> str:
        """An expired credential: the second list needs a new one."""
        plugin = self.folder / "plugin.py"
        plugin.write_text(PLUGIN)
        runs = {when: self._runs(plugin, {"exec": self._exec(plugin, f"{when}-01-01T00:00:00Z")}) for when in ("2020", "2999")}
        if runs["2020"] is None or runs["2999"] is None:
            return "no"
        return f"yes, {'' if runs['2020'] > 1 else 'not '}again when expired, {'not ' if runs['2999'] == 1 else ''}again before"

    def _exec(self, plugin: Path, when: str) -> dict[str, Any]:
        return {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(plugin), when],
            "interactiveMode": "Never",
        }

    def _runs(self, plugin: Path, user: dict[str, Any]) -> int | None:
        counter = plugin.with_name(plugin.name + ".runs")
        counter.unlink(missing_ok=True)
        seen = Seen()
        done = self._attempt(seen, user, lambda: None)
        return len(counter.read_text()) if done and counter.exists() and seen.asked[0][1].startswith("token-") else None

    def token_file(self) -> str:
        token, seen = self.folder / "token", Seen(token="first")
        token.write_text("first")
        before: list[tuple[str, str]] = []

        def rotate() -> None:
            token.write_text("second")
            seen.token = "second"
            before.extend(seen.asked)

        if self._attempt(seen, {"tokenFile": str(token)}, rotate):
            refused = any(asked == "first" for _, asked in seen.asked[len(before) :])
            return "yes, after a 401" if refused else "yes"
        return "first only" if any(asked == "first" for _, asked in seen.asked) else "no"

    def certificate(self) -> str:
        signed, seen = self.authority.client(f"ann-{self.library}", "ann"), Seen()
        user = {"client-certificate-data": inline(signed.certificate), "client-key-data": inline(signed.key)}
        done = self._attempt(seen, user, lambda: None)
        return "yes" if done and seen.asked and seen.asked[-1][0] == "ann" else "no"

    def _attempt(self, seen: Seen, user: dict[str, Any], between: Any) -> bool:
        with served(seen, server_context(self.authority)) as server:
            path = self._kubeconfig(server, user)
            asked = Path(f"{path}.asked")
            asked.unlink(missing_ok=True)
            probe = self._start("attempt", path)
            while probe.poll() is None:
                if asked.exists():
                    between()
                    asked.unlink()
                time.sleep(0.02)
            probe.communicate()
            return probe.returncode == 0

    def _start(self, what: str, kubeconfig: Path) -> "subprocess.Popen[str]":
        command = [str(self.python), str(ROOT / "benchmarks/client_probes.py"), what, self.library, str(kubeconfig)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)

    def _kubeconfig(self, server: str, user: dict[str, Any]) -> Path:
        path = self.folder / "kubeconfig"
        authority = {"certificate-authority": str(self.authority.certificate_file)} if server.startswith("https") else {}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server, **authority}}],
            "users": [{"name": "u", "user": user}],
        }
        path.write_text(yaml.safe_dump(document))
        return path


def server_context(authority: pki.Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate_file))
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(authority.folder / "server.crt", authority.folder / "server.key")
    return context


def inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def upkeep(package: str) -> str:
    """How many releases the package index lists, as pip tells."""
    shown = subprocess.run(
        [str(ROOT / ".venv/bin/pip"), "index", "versions", package], capture_output=True, text=True, check=True
    ).stdout
    return str(len(re.search(r"Available versions: (.*)", shown).group(1).split(", ")))  # type: ignore[union-attr]


def main() -> None:
    print("| library | version | releases | MB on disk | import, s | MB imported | MB watching | us an event ", end="")
    print("| exec plugin v1 | token file renewed | client certificate |\n|" + "---|" * 11)
    folder = Path(tempfile.mkdtemp(prefix="kompakt-clients-"))
    authority = pki.new_authority(folder / "pki")
    authority.server("server", "kubernetes", ["127.0.0.1"])
    try:
        for library in sys.argv[1:] or LIBRARIES:
            (folder / library).mkdir()
            bench = Bench(library, folder / library, authority)
            size, weight = bench.install(), bench.weigh()
            cells = [library, bench.version(), upkeep(UPKEEP.get(library, library)), f"{size:.0f}"]
            cells += [f"{weight['import_seconds']:.2f}", f"{weight['imported']:.0f}", f"{weight['watching']:.0f}"]
            cells += [f"{weight['event_us']:.0f}", bench.exec_plugin(), bench.token_file(), bench.certificate()]
            print("| " + " | ".join(cells) + " |", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
