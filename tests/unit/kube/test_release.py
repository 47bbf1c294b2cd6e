"""Programs from releases, served by a real server as their projects lay them out: good ones are kept, all others are built."""

import hashlib
import http.server
import io
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.kube import assets, binaries, golang, release
from tools.kube.programs import ENV_KUBERNETES, PROGRAMS, Program, pinned_version

Files = dict[str, bytes]
NAMES = sorted(name for name, program in PROGRAMS.items() if program.module in assets._ASSETS)


class Place(http.server.BaseHTTPRequestHandler):
    """Serves the `files` of its server. `broken` says per path in which way it does not; every asked path is noted."""

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.asked.append(self.path)
        content, fault = server.files.get(self.path), server.broken.get(self.path, "")
        if fault == "hangs":
            server.closing.wait(20)
            return
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if content is not None:
            self.send(server, content, fault)

    def send(self, server: "Server", content: bytes, fault: str) -> None:
        self.wfile.write(content[: len(content) // 2])
        if fault == "stalls":
            server.closing.wait(20)
        elif fault != "ends early":
            self.wfile.write(content[len(content) // 2 :])

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Place)
        self.files: Files = {}
        self.broken: dict[str, str] = {}
        self.asked: list[str] = []
        self.closing = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No programs anywhere, and an ordinary machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    for name in (binaries.ENV_FOLDER, ENV_KUBERNETES, assets.ENV_MIRROR, assets.ENV_KUBERNETES_MIRROR):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(assets.platform, "machine", lambda: "x86_64")  # type: ignore[attr-defined]
    monkeypatch.setattr(release, "_obstacles", {})
    return tmp_path


@pytest.fixture
def place(empty: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A mirror of all projects, still without files."""
    server = Server()
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    monkeypatch.setenv(assets.ENV_MIRROR, server.address)
    yield server
    server.closing.set()
    server.shutdown()
    thread.join()
    server.server_close()


def script(program: Program, version: str = "") -> bytes:
    """A stand-in for a program; it tells its version."""
    return f"#!/bin/sh\necho {program.name} {version or pinned_version(program.module)}\n".encode()


def path_of(program: Program) -> str:
    """Where the mirror has a program's release file."""
    return "/" + assets.asset_of(program).url.removeprefix("http://").partition("/")[2]


def archive(member: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as written:
        entry = tarfile.TarInfo(member)
        entry.size = len(content)
        written.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def sums_of(program: Program, content: bytes) -> bytes:
    """The published checksums in the form of the project."""
    digest, name = hashlib.sha256(content).hexdigest(), path_of(program).rpartition("/")[2]
    other = hashlib.sha256(b"other").hexdigest()
    forms = {
        "etcd": f"{other}  etcd-v0-linux-arm64.tar.gz\n{digest}  {name}\n",
        "helm": f"{digest}  {name}\n",
        "coredns": f"{digest}  build/docker/{name}\n",
        "containerd": f"{digest}  {name}\n",
        "kubernetes": digest,
    }
    return forms.get(program.module, "").encode()


class Mirror:
    """A mirror of all projects with what the test offers; `spoil` says how helm's release is not as it should be."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files, self.broken, self.asked = server.files, server.broken, server.asked
        self.set = monkeypatch.setattr
        self.set_item = monkeypatch.setitem

    def offer(self, name: str, content: bytes = b"", member: str = "") -> str:
        """Put a program there as its project does; answers the path of its file."""
        program = PROGRAMS[name]
        asset, path = assets.asset_of(program), path_of(program)
        content = content or script(program)
        file = archive(member or asset.member, content) if asset.member else content
        self.files[path] = file
        if asset.checksums:
            self.files[path.removesuffix(asset.path) + asset.checksums] = sums_of(program, file)
        else:
            key = (program.name, pinned_version(program.module), "amd64")
            self.set_item(assets.PINNED, key, hashlib.sha256(file).hexdigest())
        return path

    def checksum(self, change: Callable[[bytes], bytes]) -> None:
        sums = f"{self.helm}.sha256sum"
        self.files[sums] = change(self.files[sums])

    @property
    def helm(self) -> str:
        return path_of(PROGRAMS["helm"])

    def content(self, file: bytes, published: bytes | None = None) -> None:
        """Another file; its checksum is published too where `published` says of what."""
        self.files[self.helm] = file
        if published is not None:
            self.checksum(lambda _: sums_of(PROGRAMS["helm"], published))

    def breaks(self, fault: str, path: str = "") -> None:
        self.set(release, "STALL_SECONDS", 0.2)
        self.broken[path or self.helm] = fault

    def too_slow(self) -> None:
        load = release._load
        self.set(release, "_load", lambda asset, part, seconds: load(asset, part, -1))


@pytest.fixture
def mirror(place: Server, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    return Mirror(place, monkeypatch)


def quiet(text: str) -> None:
    pass


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_taken_from_its_projects_release(name: str, mirror: Mirror) -> None:
    program = PROGRAMS[name]
    mirror.offer(name)
    path = release.download(program, quiet)
    assert path.read_bytes() == script(program)
    assert binaries.present(program) == path
    assert [file.name for file in path.parent.iterdir()] == [name], "nothing else is left"


CONTAINERD = "https://github.com/containerd/containerd/releases/download/v2.2.1"


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("etcd", "https://github.com/etcd-io/etcd/releases/download/v3.7.3/etcd-v3.7.3-linux-amd64.tar.gz"),
        ("kwok", "https://github.com/kubernetes-sigs/kwok/releases/download/v0.8.0/kwok-linux-amd64"),
        ("helm", "https://get.helm.sh/helm-v4.3.1-linux-amd64.tar.gz"),
        ("coredns", "https://github.com/coredns/coredns/releases/download/v1.15.0/coredns_1.15.0_linux_amd64.tgz"),
        ("containerd", f"{CONTAINERD}/containerd-2.2.1-linux-amd64.tar.gz"),
        ("containerd-shim-runc-v2", f"{CONTAINERD}/containerd-2.2.1-linux-amd64.tar.gz"),
        ("kubelet", "https://dl.k8s.io/release/v1.37.1/bin/linux/amd64/kubelet"),
    ],
)
def test_without_a_mirror_the_official_file_is_meant(name: str, url: str, empty: Path) -> None:
    assert assets.asset_of(PROGRAMS[name]).url == url


def test_kubernetes_may_have_a_mirror_of_its_own(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(assets.ENV_KUBERNETES_MIRROR, "http://near/k8s/")
    assert assets.asset_of(PROGRAMS["kubectl"]).url == "http://near/k8s/v1.37.1/bin/linux/amd64/kubectl"
    assert assets.asset_of(PROGRAMS["helm"]).base == "https://get.helm.sh"


@pytest.mark.parametrize(
    ("machine", "program", "says"),
    [
        ("aarch64", "kwok", r"no checksum is known of .*kwok-linux-arm64"),
        ("riscv64", "helm", "there is no release for riscv64"),
    ],
)
def test_what_cannot_be_checked_or_is_not_there_is_not_asked_for(machine: str, program: str, says: str, mirror: Mirror) -> None:
    mirror.set(assets.platform, "machine", lambda: machine)  # type: ignore[attr-defined]
    with pytest.raises(release.NotDownloaded, match=says):
        release.download(PROGRAMS[program], quiet)
    assert mirror.asked == []


SPOILT: dict[str, tuple[str, Callable[[Mirror], object]]] = {
    "other content": ("its SHA-256 is .*, not the published", lambda m: m.content(m.files[m.helm] + b"#")),
    "no file": ("404", lambda m: m.files.pop(m.helm)),
    "no checksums": ("404", lambda m: m.files.pop(f"{m.helm}.sha256sum")),
    "a page": ("holds no SHA-256 of helm-v4", lambda m: m.checksum(lambda _: b"<html>please sign in</html>")),
    "another file's": ("holds no SHA-256 of helm-v4", lambda m: m.checksum(lambda sums: sums.replace(b"amd64", b"arm64"))),
    "cut off": ("ended after .* bytes", lambda m: m.breaks("ends early")),
    "stalling": ("timed out", lambda m: m.breaks("stalls")),
    "hanging": ("timed out", lambda m: m.breaks("hangs")),
    "too slow": ("a build is faster", lambda m: m.too_slow()),
    "without it": ("the archive holds no file linux-amd64/helm", lambda m: m.offer("helm", member="linux-amd64/README.md")),
    "no archive": ("could not be opened", lambda m: m.content(b"no archive", published=b"no archive")),
    "another": (r"does not say v4\.3\.1 but 4\.2\.0", lambda m: m.offer("helm", script(PROGRAMS["helm"], "v4.2.0"))),
    "does not run": (r"does not say v4\.3\.1 but nothing", lambda m: m.offer("helm", b"\x7fELF of another machine")),
}


@pytest.mark.parametrize(("words", "spoil"), SPOILT.values(), ids=SPOILT)
def test_a_spoilt_release_is_left_and_the_program_built(
    words: str, spoil: Callable[[Mirror], object], mirror: Mirror, empty: Path
) -> None:
    helm = PROGRAMS["helm"]
    mirror.offer("helm")
    spoil(mirror)
    with pytest.raises(release.NotDownloaded, match=words):
        release.download(helm, quiet)
    assert list(release.folder(helm).iterdir()) == [], "nothing half loaded or unchecked stays"
    built = empty / "built"
    mirror.set(golang, "build", lambda program, say: built)
    mirror.set(release, "_obstacles", {})
    said: list[str] = []
    assert binaries.find("helm", said.append) == built
    assert sum("building" in line for line in said) == 1, said


def test_places_that_do_not_answer_cost_one_wait_and_one_line(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that never answers: all programs, whose places it plays, wait for it once and together."""
    monkeypatch.setattr(release, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(golang, "build", lambda program, say: empty / program.name)
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv(assets.ENV_MIRROR, f"http://127.0.0.1:{listener.getsockname()[1]}")
        began = time.monotonic()
        found = binaries.find_all(NAMES, said.append)
        assert time.monotonic() - began < 2
    assert len(found) == len(NAMES)
    assert len(said) == 2, said
    assert said[0].startswith("missing: ")
    assert "timed out" in said[1]
    assert said[1].endswith("building instead")


def test_a_name_look_up_that_hangs_is_given_up(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def hang(*words: object, **more: object) -> None:
        done.wait(20)
        raise OSError("too late")

    monkeypatch.setattr(release, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(release.urllib.request, "urlopen", hang)  # type: ignore[attr-defined]
    said: list[str] = []
    release.survey([PROGRAMS["helm"]], said.append)
    assert said == ["no download from get.helm.sh (no answer within 0 s): building instead"]
    with pytest.raises(release.HostUnreachable):
        release.download(PROGRAMS["helm"], said.append)
    assert len(said) == 1
    done.set()


def test_a_place_that_stalled_is_not_waited_for_again(mirror: Mirror) -> None:
    for name in ("kubectl", "kubelet"):
        mirror.breaks("stalls", mirror.offer(name))
    with pytest.raises(release.NotDownloaded, match="timed out"):
        release.download(PROGRAMS["kubectl"], quiet)
    with pytest.raises(release.HostUnreachable):
        release.download(PROGRAMS["kubelet"], quiet)
    assert not any("kubelet" in path for path in mirror.asked)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A" * 64, False),
        ("a" * 63, False),
        ("a" * 65, False),
        (f"{'a' * 64}  x/file.tgz", True),
        (f"{'a' * 64} *file.tgz", True),
        (f"{'a' * 64}  profile.tgz", False),
        (f"{'b' * 64}  other\n{'a' * 64}  file.tgz", True),
        ("", False),
    ],
)
def test_published_checksums_are_read_by_name(text: str, found: bool) -> None:
    if found:
        assert assets.checksum_in(text, "file.tgz") == "a" * 64
    else:
        with pytest.raises(ValueError, match=r"no SHA-256 of file\.tgz"):
            assets.checksum_in(text, "file.tgz")
