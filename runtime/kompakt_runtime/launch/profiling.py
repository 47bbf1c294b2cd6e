"""One measured run of a training script for `kompakt profile`: a few optimizer steps are timed, then the process ends.

The script is not changed. Its steps are those of the optimizer that steps first; its data come through torch's DataLoader, which
can be made to give the first batches again and again from memory, so that no step waits for data. Which run this is, the
environment says: KOMPAKT_PROFILE=DATA,WARM-UP,STEPS, e.g. synthetic,5,20. With data `cold` or `warm` the files that
KOMPAKT_PROFILE_DATA names leave the page cache, or come into it, before anybody trains. Each rank leaves a file in
KOMPAKT_STATE_DIR; in a pod the slowest of all goes to the termination message as well.
"""

import atexit
import itertools
import json
import os
import sys
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kompakt_runtime.config import ENV_STATE_DIR, ENV_TERMINATION_LOG, TERMINATION_LOG, ConfigError
from kompakt_runtime.figures import export, pace

ENV_PROFILE: Final = "KOMPAKT_PROFILE"
ENV_PROFILE_DATA: Final = "KOMPAKT_PROFILE_DATA"
SYNTHETIC: Final = "synthetic"
REAL: Final = "real"
COLD: Final = "cold"  # real, and out of the page cache before
WARM: Final = "warm"  # real, and in it
CACHE: Final = "page-cache.json"  # in the state folder: the share of the files that is in the page cache, once they are ready
REPLAYED: Final = 4  # batches kept in memory
PARTS: Final = 4  # of the measured steps, to show how much they differ
AFTER: Final = 2  # steps that still run when this rank has written its file: others may be a step behind
MOST_STEPS: Final = 1_000_000


@dataclass(frozen=True)
class ProfilingRequest:
    """Which data, how many steps are left out at the beginning, how many are timed; where to leave the figures.

    `paths`: the data's files and folders, for COLD and WARM.
    """

    data: str
    warm_up: int
    steps: int
    folder: str
    termination_log: str = TERMINATION_LOG
    paths: tuple[str, ...] = ()

    @staticmethod
    def from_env(environ: Mapping[str, str]) -> "ProfilingRequest | None":
        """None: no run is to be measured. Raises ConfigError."""
        text = environ.get(ENV_PROFILE, "")
        if not text:
            return None
        data, *numbers = text.split(",")
        good = len(numbers) == 2 and all(n.isascii() and n.isdigit() and len(n) < 8 for n in numbers)
        if (
            data not in (SYNTHETIC, REAL, COLD, WARM)
            or not good
            or not PARTS <= int(numbers[1]) <= MOST_STEPS
            or int(numbers[0]) < 1
        ):
            raise ConfigError(
                f"{ENV_PROFILE} is {text!r}; it must be synthetic, real, cold or warm, steps of warm-up (at least 1) and "
                f"steps to time (at least {PARTS}), such as synthetic,5,20"
            )
        if not environ.get(ENV_STATE_DIR):
            raise ConfigError(f"{ENV_PROFILE} needs {ENV_STATE_DIR}, a folder for the figures")
        last_words = environ.get(ENV_TERMINATION_LOG) or TERMINATION_LOG
        paths = _paths(environ.get(ENV_PROFILE_DATA, "")) if data in (COLD, WARM) else ()
        return ProfilingRequest(data, int(numbers[0]), int(numbers[1]), environ[ENV_STATE_DIR], last_words, paths)


def _paths(text: str) -> tuple[str, ...]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not found or not all(isinstance(path, str) and path for path in found):
        raise ConfigError(f'{ENV_PROFILE_DATA} is {text[:80]!r}; it must be a list of paths such as ["/data/train"]')
    return tuple(found)


class Profiling:
    """Times the steps of this process. `start` puts the hooks in place."""

    def __init__(self, request: ProfilingRequest) -> None:
        self._request = request
        self._pace = pace.StepCounter()
        self._stamps: list[float] = []
        self._waited_before = 0.0
        self._waited = 0.0
        self._loaders = 0
        self._kept: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()

    def start(self) -> None:
        """Steps and data loaders of this process count from now on.

        Raises ImportError where torch is too old, ConfigError for data that are not there.
        """
        self._ready_data()
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data import DataLoader

        register_optimizer_step_post_hook(lambda optimizer, args, kwargs: self._stepped(optimizer))
        plain, profiling = DataLoader.__iter__, self

        def iterate(loader: Any) -> Iterator[Any]:
            return profiling._batches(loader, plain)

        DataLoader.__iter__ = iterate
        atexit.register(self._ended, os.getpid())

    def _ready_data(self) -> None:
        """Once per pod, by whichever process comes first (torchrun itself, mostly); the others wait for it."""
        request, done = self._request, Path(self._request.folder) / CACHE
        if not request.paths:
            return
        from kompakt_runtime.launch import pagecache  # what few need, no training waits for

        with export.alone(request.folder):
            if not done.exists():
                files = pagecache.files_of(request.paths)
                if request.data == WARM:
                    pagecache.load(files)
                share = pagecache.drop(files) if request.data == COLD else pagecache.cached(files)
                done.write_text(json.dumps(share))

    def _batches(self, loader: Any, plain: Any) -> Iterator[Any]:
        self._loaders += 1
        source = self._replayed(loader, plain) if self._request.data == SYNTHETIC else plain(loader)
        while True:
            began = time.perf_counter()
            try:
                batch = next(source)
            except StopIteration:
                return
            finally:
                self._waited += time.perf_counter() - began
            yield batch

    def _replayed(self, loader: Any, plain: Any) -> Iterator[Any]:
        """As many batches as the loader has, the first ones over and over; its workers end once those are there."""
        if loader not in self._kept:
            self._kept[loader] = list(itertools.islice(plain(loader), REPLAYED))
        kept = self._kept[loader]
        try:
            length = len(loader)
        except TypeError:  # data without a length
            return itertools.cycle(kept)
        return itertools.islice(itertools.cycle(kept), length)

    def _stepped(self, optimizer: Any) -> None:
        if not self._pace.stepped(optimizer):
            return
        done, request = self._pace.steps, self._request
        if done in (request.warm_up, request.warm_up + request.steps):
            _synchronize()
        if done == request.warm_up:
            self._waited_before = self._waited
        if request.warm_up <= done <= request.warm_up + request.steps:
            self._stamps.append(time.perf_counter())
        if done == request.warm_up + request.steps:
            self._write(self._figures())
        if done == request.warm_up + request.steps + AFTER:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # not through the script: what it does at its end (saving, say) is none of a profile's business

    def _figures(self) -> dict[str, Any]:
        """Seconds per step; `parts`: the same for each quarter of the steps."""
        at = [round(part * self._request.steps / PARTS) for part in range(PARTS + 1)]
        spans = [(self._stamps[end] - self._stamps[start]) / (end - start) for start, end in itertools.pairwise(at)]
        return {
            "complete": True,
            "stepSeconds": (self._stamps[-1] - self._stamps[0]) / self._request.steps,
            "parts": spans,
            "dataSeconds": (self._waited - self._waited_before) / self._request.steps,
            "loaders": self._loaders,
            "gradientBytes": self._pace.gradient_bytes,
            "ranks": pace.ranks(),
        }

    def _ended(self, owner: int) -> None:
        """The script came to its end before the last step."""
        if os.getpid() == owner and self._pace.steps < self._request.warm_up + self._request.steps:
            self._write({"complete": False, "steps": self._pace.steps})

    def _write(self, figures: dict[str, Any]) -> None:
        folder = Path(self._request.folder)
        path = folder / f"profile-{os.getpid()}.json"
        half = path.with_suffix(".part")
        half.write_text(json.dumps({"rank": int(os.environ.get("RANK", "0")), **figures}))
        half.replace(path)
        with export.alone(self._request.folder):  # whoever is last has read the files of all
            rows = [json.loads(path.read_text()) for path in sorted(folder.glob("profile-*.json"))]
            told = folder / CACHE
            run = summary(rows) | ({"cached": json.loads(told.read_text())} if told.exists() else {})
            words = {"kompakt": export.VERSION, "active": False, "reason": "Profile", "run": run}
            export.write_termination(self._request.termination_log, words)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One pod's run: that of its slowest process. `processes`: how many took all steps; without any only `steps` tells."""
    whole = [row for row in rows if row["complete"]]
    if not whole:
        return {"processes": 0, "steps": max((row["steps"] for row in rows), default=0)}
    return {
        "processes": len(whole),
        "stepSeconds": max(row["stepSeconds"] for row in whole),
        "parts": [max(parts) for parts in zip(*(row["parts"] for row in whole), strict=True)],
        "dataSeconds": max(row["dataSeconds"] for row in whole),
        "loaders": sum(row["loaders"] for row in whole),
        "gradientBytes": max(row["gradientBytes"] for row in whole),
        "ranks": max(row["ranks"] for row in whole),
    }


def _synchronize() -> None:
    """What GPUs still have to do belongs to the steps before."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
