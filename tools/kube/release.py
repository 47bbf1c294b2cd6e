"""Programs from the official releases of their projects, each checked against its SHA-256.

Who cannot download must not notice much of it: all places are asked at once, which takes 5 s at the most, and a download
that stalls or would take longer than building the program is given up.
"""

import hashlib
import os
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

from tools.kube.assets import Asset, NoAsset, asset_of, checksum_in
from tools.kube.cache import cache_root
from tools.kube.programs import Program, parse_version, pinned_version, version_of

CONNECT_SECONDS = 4.0
ANSWER_SECONDS = 5.0  # name look-ups included, which have no timeout of their own
STALL_SECONDS = 10.0
LEAST_SECONDS = 60.0  # for any download; else as long as its build takes
_CHUNK = 1 << 20
_FAULTS = (OSError, HTTPException, ValueError, EOFError, tarfile.TarError)

Say = Callable[[str], None]


class NotDownloaded(Exception):
    """The program cannot be downloaded; the message says why."""


class HostUnreachable(NotDownloaded):
    """Its place does not answer, which `survey` has told already."""


def folder(program: Program) -> Path:
    """Where a downloaded program is kept."""
    return cache_root() / "bin" / f"{program.module}-{pinned_version(program.module)}-release"


def survey(programs: Iterable[Program], say: Say) -> None:
    """Ask the places of these programs, all at once and each once per run; say in one line which do not answer."""
    bases = {base for program in programs if (base := _base(program)) and base not in _obstacles}
    asked = [threading.Thread(target=_ask, args=(base,), daemon=True) for base in bases]
    end = time.monotonic() + ANSWER_SECONDS
    for thread in asked:
        thread.start()
    for thread in asked:
        thread.join(max(end - time.monotonic(), 0))
    late = f"no answer within {ANSWER_SECONDS:.0f} s"
    silent = {urlsplit(base).netloc: reason for base in bases if (reason := _obstacles.setdefault(base, late))}
    if silent:
        say(f"no download from {', '.join(sorted(silent))} ({'; '.join(sorted(set(silent.values())))}): building instead")


def download(program: Program, say: Say) -> Path:
    """The program's file in the cache. Raises NotDownloaded; nothing half loaded or unchecked stays in place."""
    try:
        asset = asset_of(program)
    except NoAsset as error:
        raise NotDownloaded(str(error)) from error
    survey([program], say)
    if _obstacles[asset.base]:
        raise HostUnreachable(f"{asset.base} does not answer ({_obstacles[asset.base]})")
    say(f"{program.name}: downloading {asset.url}")
    target = folder(program)
    target.mkdir(parents=True, exist_ok=True)
    part, fresh = (target / f".{program.name}.{kind}.{os.getpid()}" for kind in ("part", "fresh"))
    try:
        _load(asset, part, max(LEAST_SECONDS, program.build_seconds))
        _unpack(asset, part, fresh)
        _check_version(program, fresh)
        return fresh.replace(target / program.name)
    except _FAULTS as error:
        if isinstance(getattr(error, "reason", error), TimeoutError):
            _obstacles[asset.base] = str(error)  # the next program must not wait for the same place
        raise NotDownloaded(f"{asset.url}: {error}") from error
    finally:
        for path in (part, fresh):
            path.unlink(missing_ok=True)


# By place: why it does not answer; empty where it does.
_obstacles: dict[str, str] = {}


def _base(program: Program) -> str:
    try:
        return asset_of(program).base
    except NoAsset:
        return ""


def _ask(base: str) -> None:
    """Any answer will do, also that there is nothing at this path."""
    try:
        with urllib.request.urlopen(base, timeout=CONNECT_SECONDS):
            reason = ""
    except urllib.error.HTTPError as error:
        error.close()
        reason = f"it answers {error.code}" if error.code >= 500 else ""
    except (OSError, HTTPException) as error:
        reason = str(getattr(error, "reason", error))
    _obstacles.setdefault(base, reason)


def _load(asset: Asset, part: Path, seconds: float) -> None:
    """The asset as a file with the right SHA-256."""
    end = time.monotonic() + seconds
    name = asset.path.rpartition("/")[2]
    expected = asset.pinned
    if not expected:
        text = b"".join(_pieces(f"{asset.base}/{asset.checksums}", end)).decode()
        expected = checksum_in(text, name)
    digest = hashlib.sha256()
    with part.open("wb") as file:
        for piece in _pieces(asset.url, end):
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != expected:
        raise ValueError(f"its SHA-256 is {digest.hexdigest()}, not the published {expected}")


def _pieces(url: str, end: float) -> Iterator[bytes]:
    """What a URL holds, until `end` at the latest. Raises TimeoutError, and OSError where it ends too early."""
    response: HTTPResponse
    with urllib.request.urlopen(url, timeout=STALL_SECONDS) as response:
        expected, got = response.length, 0
        while piece := response.read1(_CHUNK):
            got += len(piece)
            yield piece
            if time.monotonic() > end:
                raise TimeoutError(f"only {got / 1e6:.0f} MB came in time; a build is faster")
        if expected is not None and got != expected:
            raise OSError(f"ended after {got} of {expected} bytes")


def _unpack(asset: Asset, part: Path, fresh: Path) -> None:
    """The program itself, executable."""
    if not asset.member:
        part.replace(fresh)
    else:
        with tarfile.open(part) as archive:
            try:
                found = archive.extractfile(asset.member)
            except KeyError:
                found = None
            if found is None:
                raise ValueError(f"the archive holds no file {asset.member}")
            fresh.write_bytes(found.read())
    fresh.chmod(0o755)


def _check_version(program: Program, fresh: Path) -> None:
    found, pinned = version_of(fresh, program), pinned_version(program.module)
    if found is None or found != parse_version(pinned):
        says = "nothing" if found is None else ".".join(map(str, found))
        raise ValueError(f"asked for its version, the program does not say {pinned} but {says}")
