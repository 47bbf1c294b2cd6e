"""Where the programs of a cluster come from.

In this order: the folder that KOMPAKT_KUBE_BIN names, the cache, PATH, the official release of its project, a build from
the Go modules pinned in go/. A cluster's Kubernetes programs must agree in version, so PATH and download count only
with the pinned minor version, while a named folder may hold any supported one, but then must hold all of them.
KOMPAKT_KUBERNETES=1.36 takes that minor version in place of the newest; what a version needs is kept beside the others'.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from tools.kube import golang, release
from tools.kube.cache import locked
from tools.kube.programs import (
    NEWEST_MINOR,
    OLDEST_MINOR,
    PROGRAMS,
    NoProgram,
    Program,
    parse_version,
    pinned_version,
    supported,
    version_of,
)

ENV_FOLDER = "KOMPAKT_KUBE_BIN"

Say = Callable[[str], None]


def tell(text: str) -> None:
    print(f"   {text}", flush=True)


def find(name: str, say: Say = tell) -> Path:
    """The path of one program, fetched or built where it must be. Raises NoProgram."""
    program = PROGRAMS[name]
    known = present(program)
    if known is not None:
        return known
    # One lock for all programs: two builds at once would need twice the memory and share nothing.
    with locked("programs"):
        return present(program) or _fetch(program, say)


def present(program: Program) -> Path | None:
    """Where the program lies already: named folder, cache, PATH."""
    return _from_folder(program) or _from_cache(program) or _from_path(program)


def find_all(names: Iterable[str], say: Say = tell) -> dict[str, Path]:
    """Several programs; says first what must be fetched or built and how long a build takes."""
    wanted = list(names)
    missing = [PROGRAMS[name] for name in wanted if present(PROGRAMS[name]) is None]
    if missing:
        seconds = sum(program.build_seconds for program in missing)
        say(
            f"missing: {', '.join(program.name for program in missing)}; a build of these takes about "
            f"{max(1, round(seconds / 60))} min on two cores with empty caches, once"
        )
        release.survey(missing, say)
    return {name: find(name, say) for name in wanted}


def _from_folder(program: Program) -> Path | None:
    folder = os.environ.get(ENV_FOLDER)
    if not folder:
        return None
    path = Path(folder) / program.name
    if not path.is_file():
        if program.kubernetes:
            raise NoProgram(f"{ENV_FOLDER}={folder} holds no {program.name}; all Kubernetes programs must come from one folder")
        return None
    version = version_of(path, program)
    if version is None:
        raise NoProgram(f"{path} does not run or tells no version")
    if program.kubernetes and not supported(version):
        text = ".".join(map(str, version))
        raise NoProgram(f"{path} is Kubernetes {text}; kompakt supports 1.{OLDEST_MINOR} to 1.{NEWEST_MINOR}")
    return path


def _from_cache(program: Program) -> Path | None:
    for folder in (golang.folder(program.module), release.folder(program)):
        if (folder / program.name).is_file():
            return folder / program.name
    return None


def _from_path(program: Program) -> Path | None:
    found = shutil.which(program.name)
    if found is None:
        return None
    version, pinned = version_of(Path(found), program), parse_version(pinned_version(program.module))
    # Same major and minor version as the pinned one: that is what the tests ran with.
    return Path(found) if version is not None and pinned is not None and version[:2] == pinned[:2] else None


def _fetch(program: Program, say: Say) -> Path:
    try:
        return release.download(program, say)
    except release.HostUnreachable:
        pass  # said once for all programs of that place
    except release.NotDownloaded as error:
        say(f"{program.name}: {error}; building it instead")
    try:
        return golang.build(program, say)
    except golang.BuildFailed as error:
        raise NoProgram(f"{program.name} can neither be downloaded nor built: {error}") from error
