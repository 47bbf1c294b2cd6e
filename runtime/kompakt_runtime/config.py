"""What the runtime is told, read once from the environment. No torch here: bad settings are known before it is loaded."""

import fnmatch
import json
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from kompakt_runtime.amounts import Amount

Mode = Literal["None", "Lossless", "ErrorBounded"]
FailurePolicy = Literal["Ignore", "Fail"]
Batch = Literal["Keep", "Suggest", "Measure", "Raise"]
ActivationGradients = Literal["Bounded", "Exact"]
Offload = Literal["Auto", "Never"]
MODES: Final = ("None", "Lossless", "ErrorBounded")
FAILURE_POLICIES: Final = ("Ignore", "Fail")
BATCHES: Final = ("Keep", "Suggest", "Measure", "Raise")
ACTIVATION_GRADIENTS: Final = ("Bounded", "Exact")
# Deprecated: what the setting was called, and what its values are called now.
NONLINEAR: Final = {"Keep": "Exact", "Bounded": "Bounded"}
OFFLOAD: Final = ("Auto", "Never")
# Training goes on with a larger batch than fits without compression, or an attempt that will do so is prepared.
RAISING: Final = ("Measure", "Raise")
MEASURING: Final = ("Suggest", "Measure")  # steps with this batch say which one fits

# Written by the operator; the same names stand in kompakt_core.contract, which this package cannot import.
ENV_MODE: Final = "KOMPAKT_MODE"
ENV_TARGET: Final = "KOMPAKT_TARGET"
ENV_OVERRIDES: Final = "KOMPAKT_OVERRIDES"
ENV_MIN_TENSOR_BYTES: Final = "KOMPAKT_MIN_TENSOR_BYTES"
ENV_ACTIVATION_GRADIENTS: Final = "KOMPAKT_ACTIVATION_GRADIENTS"
ENV_NONLINEAR: Final = "KOMPAKT_NONLINEAR_INPUTS"  # deprecated
ENV_OFFLOAD: Final = "KOMPAKT_OFFLOAD"
ENV_MEMORY_BUDGET: Final = "KOMPAKT_MEMORY_BUDGET"
ENV_FAILURE_POLICY: Final = "KOMPAKT_FAILURE_POLICY"
ENV_BATCH: Final = "KOMPAKT_BATCH"
ENV_STATE_DIR: Final = "KOMPAKT_STATE_DIR"
ENV_ATTEMPT: Final = "KOMPAKT_ATTEMPT"
ENV_PROGRESS_FILE: Final = "KOMPAKT_PROGRESS_FILE"
ENV_METRICS_PORT: Final = "KOMPAKT_METRICS_PORT"
READ_ENV: Final = frozenset(
    {ENV_MODE, ENV_TARGET, ENV_OVERRIDES, ENV_MIN_TENSOR_BYTES, ENV_FAILURE_POLICY, ENV_STATE_DIR, ENV_ATTEMPT}
    | {ENV_PROGRESS_FILE, ENV_METRICS_PORT, ENV_BATCH, ENV_ACTIVATION_GRADIENTS, ENV_NONLINEAR, ENV_OFFLOAD}
    | {ENV_MEMORY_BUDGET}
)
# Set by nobody but a person or `kompakt run`: the kill switch (any value but 0), where the last words go instead of
# Kubernetes' file, whether every copy is compared with its original, whether dropout is replayed, whether to end after the
# first compressed step, and a folder that outlives the pod, where bounds are kept for the next attempt.
ENV_OFF: Final = "KOMPAKT_OFF"
ENV_TERMINATION_LOG: Final = "KOMPAKT_TERMINATION_LOG"
ENV_VERIFY: Final = "KOMPAKT_VERIFY"
ENV_REPLAY: Final = "KOMPAKT_REPLAY"
ENV_DRY_RUN: Final = "KOMPAKT_DRY_RUN"
ENV_BOUNDS_DIR: Final = "KOMPAKT_BOUNDS_DIR"
# By a person as well: the file that switches compression off while it is there; else one of this name in the state folder.
ENV_SWITCH_FILE: Final = "KOMPAKT_SWITCH_FILE"
SWITCH_FILE: Final = "off"
ENV_COMPARE: Final = "KOMPAKT_COMPARE"  # steps whose gradients are compared with plain training's, and the folder of those
ENV_COMPARE_DIR: Final = "KOMPAKT_COMPARE_DIR"
ENV_ALL_ROWS: Final = "KOMPAKT_ALL_ROWS"  # whether the report of `kompakt run` has all its rows
EXIT_CONFIG: Final = 78  # EX_CONFIG of sysexits.h: compression is asked for and cannot be had
TERMINATION_LOG: Final = "/dev/termination-log"
RIGHT_OVERRIDES: Final = 'right is [{"modules": "head.*", "mode": "None"}]'

# The accuracy sweep behind the cap (docs/decisions/0072): up to 0.1 of the momentum training is unchanged, at 1 it is a lottery.
HIGHEST_TARGET: Final = 0.1
DEFAULT_TARGET: Final = "0.01"
DEFAULT_MIN_TENSOR_BYTES: Final = 65536


class ConfigError(ValueError):
    """A setting that cannot be right; the message names the variable, what it holds, and what would be right."""


@dataclass(frozen=True)
class SiteOverride:
    """Modules get another mode: those whose name matches the pattern (as in `head.*`), or those of a class (`class:Conv2d`)."""

    modules: str
    mode: Mode

    def matches(self, module: str, class_name: str) -> bool:
        return fnmatch.fnmatchcase(module, self.modules) or fnmatch.fnmatchcase(f"class:{class_name}", self.modules)


@dataclass(frozen=True)
class RuntimeConfig:
    """target: allowed standard deviation of a weight gradient's error, as a share of what the optimizer steps by; batch: whether
    to look for a larger one that fits (Suggest; Measure: and end once it is known), or one that only fits compressed is in force
    (Raise); replay: whether masks of dropout on CPUs are drawn again instead of kept; overhead: whether to measure what
    compression costs in time, by some steps without it; activation_gradients: in mode ErrorBounded, whether what norms, GELU and
    attention read is error-bounded too, and with it gradients of activations; offload: whether what is kept may wait in host
    memory; memory_budget: how much of the device a step may take, None for as little as can be; switch_file: see switch.py;
    all_rows: whether the report of `kompakt run` has all its rows.
    """

    mode: Mode = "None"
    target: str = DEFAULT_TARGET
    overrides: tuple[SiteOverride, ...] = ()
    min_tensor_bytes: int = DEFAULT_MIN_TENSOR_BYTES
    failure_policy: FailurePolicy = "Ignore"
    state_dir: str | None = None
    attempt: int = 1
    termination_log: str = TERMINATION_LOG
    verify: bool = False
    dry_run: bool = False
    progress_file: str | None = None
    metrics_port: int | None = None
    batch: Batch = "Keep"
    overhead: bool = False
    replay: bool = False
    activation_gradients: ActivationGradients = "Bounded"
    offload: Offload = "Never"
    memory_budget: Amount | None = None
    switch_file: str | None = None
    compare: int = 0
    compare_dir: str = ""
    bounds_dir: str | None = None
    all_rows: bool = False

    @property
    def bounds_activations(self) -> bool:
        """Whether gradients of activations may have errors."""
        return self.mode == "ErrorBounded" and self.activation_gradients == "Bounded"

    @property
    def lossy(self) -> bool:
        """Whether any module may be error-bounded, so that the target says something. With mode None nothing is looked at."""
        return self.mode != "None" and "ErrorBounded" in (self.mode, *(override.mode for override in self.overrides))

    @property
    def packs(self) -> bool:
        """Whether anything may be packed, if only without loss."""
        return self.lossy or self.mode == "Lossless"

    def mode_of(self, module: str, class_name: str = "") -> Mode:
        """The mode of a module by its name and the name of its class; the first override that matches wins."""
        for override in self.overrides:
            if override.matches(module, class_name):
                return override.mode
        return self.mode

    @staticmethod
    def of(
        mode: Any,
        target: Any,
        overrides: Mapping[str, Any],
        min_tensor_bytes: Any,
        verify: bool,
        replay: bool = False,
        activation_gradients: Any = None,
        offload: Any = "Never",
        nonlinear: Any = None,
        memory_budget: Any = None,
    ) -> "RuntimeConfig":
        """From values of a program. Raises ConfigError that names the argument. nonlinear: deprecated."""
        if isinstance(min_tensor_bytes, bool) or not isinstance(min_tensor_bytes, int):
            raise ConfigError(f"min_tensor_bytes is {min_tensor_bytes!r}; it must be a whole number of bytes")
        if not isinstance(overrides, Mapping):
            raise ConfigError(f'overrides must map name patterns to modes, as {{"head.*": "None"}}, not {overrides!r}')
        rows = [{"modules": modules, "mode": other} for modules, other in overrides.items()]
        _agree("offload", mode, offload)
        return RuntimeConfig(
            mode=cast(Mode, _one_of("mode", mode, MODES)),
            target=_target("target", str(target)),
            overrides=tuple(_override("overrides", number, row) for number, row in enumerate(rows)),
            min_tensor_bytes=_integer("min_tensor_bytes", str(min_tensor_bytes), DEFAULT_MIN_TENSOR_BYTES),
            verify=bool(verify),
            replay=bool(replay),
            activation_gradients=_gradients(mode, {"activation_gradients": activation_gradients, "nonlinear": nonlinear}),
            offload=cast(Offload, _one_of("offload", offload, OFFLOAD)),
            memory_budget=_budget("memory_budget", mode, memory_budget),
        )

    @staticmethod
    def from_env(environ: Mapping[str, str]) -> "RuntimeConfig":
        """Raises ConfigError that begins with the variable's name. An empty variable counts as absent."""
        mode = environ.get(ENV_MODE) or "None"
        _agree(ENV_OFFLOAD, mode, environ.get(ENV_OFFLOAD))
        return RuntimeConfig(
            mode=cast(Mode, _one_of(ENV_MODE, mode, MODES)),
            target=_target(ENV_TARGET, environ.get(ENV_TARGET) or DEFAULT_TARGET),
            overrides=_overrides(environ),
            min_tensor_bytes=_integer(
                ENV_MIN_TENSOR_BYTES, environ.get(ENV_MIN_TENSOR_BYTES) or str(DEFAULT_MIN_TENSOR_BYTES), DEFAULT_MIN_TENSOR_BYTES
            ),
            failure_policy=failure_policy(environ),
            batch=cast(Batch, _one_of(ENV_BATCH, environ.get(ENV_BATCH) or "Keep", BATCHES)),
            state_dir=environ.get(ENV_STATE_DIR) or None,
            attempt=_integer(ENV_ATTEMPT, environ.get(ENV_ATTEMPT) or "1", 1),
            termination_log=environ.get(ENV_TERMINATION_LOG) or TERMINATION_LOG,
            verify=environ.get(ENV_VERIFY, "0") not in ("", "0"),
            replay=environ.get(ENV_REPLAY, "0") not in ("", "0"),
            dry_run=environ.get(ENV_DRY_RUN, "0") not in ("", "0"),
            activation_gradients=_gradients(
                mode, {name: environ.get(name) or None for name in (ENV_ACTIVATION_GRADIENTS, ENV_NONLINEAR)}
            ),
            offload=cast(Offload, _one_of(ENV_OFFLOAD, environ.get(ENV_OFFLOAD) or "Never", OFFLOAD)),
            memory_budget=_budget(ENV_MEMORY_BUDGET, mode, environ.get(ENV_MEMORY_BUDGET)),
            overhead=all(environ.get(name, "0") in ("", "0") for name in (ENV_VERIFY, ENV_DRY_RUN, ENV_COMPARE)),
            progress_file=environ.get(ENV_PROGRESS_FILE) or None,
            metrics_port=_port(environ),
            switch_file=_switch_file(environ),
            compare=_integer(ENV_COMPARE, environ.get(ENV_COMPARE) or "0", 50),
            compare_dir=environ.get(ENV_COMPARE_DIR) or "",
            bounds_dir=environ.get(ENV_BOUNDS_DIR) or None,
            all_rows=environ.get(ENV_ALL_ROWS, "0") not in ("", "0"),
        )


def rank(environ: Mapping[str, str]) -> int:
    """This process's, as launchers set it; 0 where none did."""
    return _whole(environ.get("RANK"), 0)


def ranks(environ: Mapping[str, str]) -> int:
    """How many there are."""
    return _whole(environ.get("WORLD_SIZE"), 1)


def _whole(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else otherwise


def switched_off(environ: Mapping[str, str]) -> bool:
    """As the start-up hook judges it, which can import nothing."""
    return environ.get(ENV_OFF, "0") not in ("", "0")


def failure_policy(environ: Mapping[str, str]) -> FailurePolicy:
    """Read apart as well, because it decides what becomes of an error in the others. A raised batch never trains plainly."""
    if environ.get(ENV_BATCH) in RAISING:
        return "Fail"
    return cast(FailurePolicy, _one_of(ENV_FAILURE_POLICY, environ.get(ENV_FAILURE_POLICY) or "Ignore", FAILURE_POLICIES))


def _one_of(name: str, value: Any, allowed: Collection[str]) -> str:
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
    return str(value)


def _agree(offload_name: str, mode: Any, offload: Any) -> None:
    """Raises ConfigError where the mode leaves nothing to do for what is asked for. Each value alone is judged elsewhere."""
    if mode == "None" and offload == "Auto":
        raise ConfigError(f"{offload_name} is {offload!r}; that needs a mode other than None, in which no tensor is looked at")


def _budget(name: str, mode: Any, value: Any) -> Amount | None:
    """`value`: text, or a whole number of bytes; None or nothing where there is no budget."""
    if value in (None, ""):
        return None
    try:
        found = Amount.of(str(value))
    except ValueError as error:
        raise ConfigError(f"{name} is {value!r}; {error}") from error
    if mode != "ErrorBounded":
        raise ConfigError(f"{name} is {value!r}; that needs mode ErrorBounded, in which there is something to choose, not {mode}")
    return found


def _gradients(mode: Any, given: Mapping[str, Any]) -> ActivationGradients:
    """`given`: by today's name and by the deprecated one, None where it was not said. Today's default is Bounded."""
    (name, value), (old, former) = given.items()
    if value is not None:
        _one_of(name, value, ACTIVATION_GRADIENTS)
    if former is not None:
        meant = NONLINEAR[_one_of(old, former, NONLINEAR)]
        if value not in (None, meant):
            raise ConfigError(f"{old} is {former!r}, which now is {name} {meant}, but {name} is {value!r}; leave {old} out")
        name, value = (old, meant) if value is None else (name, value)
    if mode in ("None", "Lossless") and value == "Bounded":
        raise ConfigError(f"{name} is {value!r}; that needs mode ErrorBounded, not {mode}")
    return cast(ActivationGradients, value or "Bounded")


def _integer(name: str, text: str, example: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ConfigError(f"{name} is {text!r}; it must be a whole number that is not negative, such as {example}")
    return int(text)


def _port(environ: Mapping[str, str]) -> int | None:
    text = environ.get(ENV_METRICS_PORT) or "0"
    port = _integer(ENV_METRICS_PORT, text, 9402)
    if port > 65535:
        raise ConfigError(f"{ENV_METRICS_PORT} is {text!r}; it must be a port up to 65535, or 0 for none")
    return port or None


def _switch_file(environ: Mapping[str, str]) -> str | None:
    """Absolute: a program may change its folder. None also where a batch is in force that does not fit without compression."""
    named, folder = environ.get(ENV_SWITCH_FILE), environ.get(ENV_STATE_DIR)
    path = named or (os.path.join(folder, SWITCH_FILE) if folder else "")
    return os.path.abspath(path) if path and environ.get(ENV_BATCH) not in RAISING else None


def _target(name: str, text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= HIGHEST_TARGET:
        raise ConfigError(f"{name} is {text!r}; it must be a number above 0 and at most {HIGHEST_TARGET}, such as 0.01")
    return text


def _overrides(environ: Mapping[str, str]) -> tuple[SiteOverride, ...]:
    text = environ.get(ENV_OVERRIDES) or "[]"
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{ENV_OVERRIDES} is no JSON: {error}; {RIGHT_OVERRIDES}") from error
    if not isinstance(rows, list):
        raise ConfigError(f"{ENV_OVERRIDES} must be a list, not {type(rows).__name__}; {RIGHT_OVERRIDES}")
    return tuple(_override(ENV_OVERRIDES, number, row) for number, row in enumerate(rows))


def _override(name: str, number: int, row: Any) -> SiteOverride:
    """Without a mode modules are left out, as in a TrainingJob."""
    if not isinstance(row, dict) or not {"modules"} <= set(row) <= {"modules", "mode"}:
        raise ConfigError(f'{name}[{number}] is {row!r}; it must have "modules", and may have "mode"; {RIGHT_OVERRIDES}')
    modules, mode = row["modules"], row.get("mode", "None")
    if not isinstance(modules, str) or not modules:
        raise ConfigError(f"{name}[{number}].modules must be a name pattern such as head.*, not {modules!r}; {RIGHT_OVERRIDES}")
    if mode not in MODES:
        raise ConfigError(f"{name}[{number}].mode is {mode!r}; it must be one of {', '.join(MODES)}; {RIGHT_OVERRIDES}")
    return SiteOverride(modules, mode)
