"""Starts once torch is imported: reads the settings, starts the session, sees to the figures. Called by the start-up hook.

With the failure policy Ignore nothing that goes wrong here stops the user's program; it trains plainly and the reason
is reported. With Fail the program ends before it trains.
"""

import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing import process, util
from typing import Any, Final

from kompakt_runtime.bounds.file import BoundsFile, path_of
from kompakt_runtime.config import EXIT_CONFIG, ConfigError, RuntimeConfig, failure_policy
from kompakt_runtime.figures import export, metrics
from kompakt_runtime.figures.checkpoint import CheckpointFigures
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.figures.pace import StepCounter
from kompakt_runtime.launch.profiling import Profiling, ProfilingRequest

OLDEST_TORCH: Final = (2, 4)
# In command lines of processes that multiprocessing starts anew; CPython 3.14 has another statement before.
STARTERS: Final = (
    *(f"from multiprocessing.{name} import" for name in ("spawn", "forkserver", "resource_tracker")),
    "--multiprocessing-",
)


class Unsupported(RuntimeError):
    """`reason` is one word for the summary, the message a sentence for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def start(environ: Mapping[str, str] = os.environ) -> Any:
    """The running session, or None where there is none. Raises SystemExit only with the failure policy Fail."""
    config, pace = RuntimeConfig(), StepCounter()
    try:
        if (request := ProfilingRequest.from_env(environ)) is not None and not _child():
            Profiling(request).start()
        config = RuntimeConfig.from_env(environ)
        metrics.serve(config, pace)
        return _start(config, pace)
    except ConfigError as error:
        _failed(_reporting(environ, config), "BadConfig", str(error), environ)
    except Unsupported as error:
        _failed(config, error.reason, str(error), environ)
    except Exception as error:
        _failed(config, f"StartFailed{type(error).__name__}", repr(error), environ)
    return None


def _start(config: RuntimeConfig, pace: StepCounter) -> Any:
    pace.watch()
    if config.mode == "None":
        _report_at_exit(config, Figures(), "ModeNone", pace)
        _compare(config, None)
        return None
    session = load_session()(config)
    _report_at_exit(config, session.figures, "", pace)
    session.stepped = _each_step(config, session, pace)
    session.start()
    _compare(config, session.figures)
    target = f", target {config.target}" if config.lossy else ""
    _say(f"activation compression {config.mode}{target}, torch {_torch_version()}{_offloading(config)}")
    return session


def _compare(config: RuntimeConfig, figures: Figures | None) -> None:
    """One of the two runs of `kompakt run --compare`; the plain one has no figures."""
    if not (config.compare and config.compare_dir):
        return
    from kompakt_runtime.report.plain_run import FollowingRun, PlainRun, begin_equally

    begin_equally()
    if figures is None:
        PlainRun(config.compare_dir, config.compare)
    else:
        figures.compared = FollowingRun(config.compare_dir, config.compare).errors.said


def _each_step(config: RuntimeConfig, session: Any, pace: StepCounter) -> Callable[[], None]:
    """What is left behind while training runs, and first of all what an earlier attempt left."""
    figures = CheckpointFigures(config, session.figures, pace.said)
    if config.bounds_dir is None:
        return figures.stepped
    count = session.figures.count_raw
    files = [BoundsFile(path_of(config.bounds_dir, os.environ), session.remembered, count)]
    if config.memory_budget is not None:
        files.append(BoundsFile(path_of(config.bounds_dir, os.environ, "plan"), session.planned, count, what="SavedPlan"))
    for file in files:
        file.read()

    def stepped() -> None:
        for file in files:
            file.stepped()
        figures.stepped()

    return stepped


def _offloading(config: RuntimeConfig) -> str:
    if config.offload == "Never":
        return ""
    # Counting asks the driver's library where it can, so that children may still be forked.
    gpus = sys.modules["torch"].cuda.device_count()
    return "; offload Auto" if gpus else "; offload Auto: NoGpu, nothing leaves memory"


def _torch_version() -> str:
    return str(sys.modules["torch"].__version__)


def _check_torch() -> None:
    import torch  # in a program that uses us as a library nobody may have imported it yet

    version = str(torch.__version__)
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if numbers < OLDEST_TORCH:
        wanted = ".".join(map(str, OLDEST_TORCH))
        raise Unsupported("UnsupportedTorch", f"torch {version} is too old: activation compression needs {wanted} or later")


def load_session() -> Any:
    """The class, if all that it needs of torch is there and behaves; tested with torch 2.15. Raises Unsupported."""
    _check_torch()
    try:
        from kompakt_runtime.scope.origin import self_check
        from kompakt_runtime.session import Session

        missing = self_check()
    except (ImportError, AttributeError, TypeError) as error:
        missing = str(error)
    if missing:
        raise Unsupported("UnsupportedTorch", f"torch {_torch_version()} is not fit for activation compression: {missing}")
    return Session


def _reporting(environ: Mapping[str, str], config: RuntimeConfig) -> RuntimeConfig:
    """Where to report a bad setting to: the settings that do not matter for it, if these can be read."""
    keep = {name: value for name, value in environ.items() if name in ("KOMPAKT_STATE_DIR", "KOMPAKT_TERMINATION_LOG")}
    attempt = environ.get("KOMPAKT_ATTEMPT", "")
    if attempt.isascii() and attempt.isdigit() and len(attempt) < 19:
        keep["KOMPAKT_ATTEMPT"] = attempt
    return RuntimeConfig.from_env(keep)


def _failed(config: RuntimeConfig, reason: str, message: str, environ: Mapping[str, str]) -> None:
    try:
        fail = failure_policy(environ) == "Fail"
    except ConfigError:
        fail = False
    if fail:
        _last_words(config, Figures(), reason)
        print(f"kompakt: {message}. The job's failure policy is Fail, so it ends here.", file=sys.stderr, flush=True)
        raise SystemExit(EXIT_CONFIG)
    _say(f"training without activation compression: {message}")
    _report_at_exit(config, Figures(), reason)


def _say(message: str) -> None:
    """One line, from one process of a node; what its children would say the parent has said."""
    if os.environ.get("LOCAL_RANK", "0") == "0" and not _child():
        print(f"kompakt: {message}", file=sys.stderr, flush=True)


def _child() -> bool:
    """Did multiprocessing start this process? Data loaders' workers are such, and ranks of a program that starts them itself.

    One that is started anew knows its parent late, after it has read the program's main module; its command line tells.
    """
    anew = any(starter in word for word in sys.orig_argv for starter in STARTERS)
    return anew or process.parent_process() is not None


def _report_at_exit(config: RuntimeConfig, figures: Figures, failure: str, pace: StepCounter | None = None) -> None:
    """Of this process, and of those that multiprocessing forks from it: each of what it did itself.

    Not by atexit: what was registered before a fork is not called in the child, and in children up to CPython 3.12 nothing is.
    """

    def at_exit() -> None:
        # The first of multiprocessing's own: ending pools may take a while. It is bound to this process.
        util.Finalize(None, _last_words, (config, figures, failure, pace), exitpriority=1000)

    def forked(figures: Figures) -> None:
        figures.begin()
        if pace is not None:
            pace.begin()
        at_exit()

    at_exit()
    util.register_after_fork(figures, forked)


def _last_words(config: RuntimeConfig, figures: Figures, failure: str, pace: StepCounter | None = None) -> None:
    """Never raises. Launchers never trained, and workers that load data may call modules but no optimizer."""
    if not (figures.forwards or figures.raw or "RANK" in os.environ or failure):
        return
    if _child() and not figures.steps:
        return
    try:
        export.write_words(config, export.report(figures, failure, pace.said() if pace else {}, ended=True))
    except Exception as error:
        print(f"kompakt: figures could not be written: {error}", file=sys.stderr)
