"""The options of `kompakt run` and `kompakt-run`: one table that both parsers, help, errors and settings are made from.

A new option is a row in OPTIONS and the variable that `config.py` reads; nothing else lists options.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kompakt_runtime import config


@dataclass(frozen=True)
class Option:
    """An option that sets one variable of the program's environment.

    default: what the variable holds without the option. given: what it holds with it, where the option takes no value.
    """

    name: str
    variable: str
    default: str
    help: str
    given: str | None = None

    @property
    def key(self) -> str:
        """As a parser names its value."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def flag(self) -> bool:
        return self.given is not None

    def setting(self, value: Any) -> str:
        """What the variable holds for a parser's value: a text, or whether a flag was given."""
        if self.given is None:
            return str(value)
        return self.given if value else self.default


def _one_of(words: tuple[str, ...]) -> str:
    return f"one of {', '.join(words)}"


OPTIONS: Final = (
    Option("--mode", config.ENV_MODE, "ErrorBounded", _one_of(config.MODES)),
    Option(
        "--target",
        config.ENV_TARGET,
        config.DEFAULT_TARGET,
        "error of weight gradients as a share of what the optimizer steps by",
    ),
    Option("--overrides", config.ENV_OVERRIDES, "[]", 'JSON, as [{"modules": "head.*", "mode": "None"}]'),
    Option(
        "--min-tensor-bytes",
        config.ENV_MIN_TENSOR_BYTES,
        str(config.DEFAULT_MIN_TENSOR_BYTES),
        "smaller tensors stay as they are",
    ),
    Option("--dry-run", config.ENV_DRY_RUN, "0", "end after the second step, show what it saved", given="1"),
    Option("--suggest-batch", config.ENV_BATCH, "Keep", "say how large a batch would fit into memory", given="Suggest"),
    Option("--replay", config.ENV_REPLAY, "0", "draw dropout's masks again instead of keeping them (CPUs)", given="1"),
    Option(
        "--activation-gradients",
        config.ENV_ACTIVATION_GRADIENTS,
        "",
        f"{_one_of(config.ACTIVATION_GRADIENTS)}; Bounded, the default of mode ErrorBounded, packs what norms, GELU and attention"
        " read too",
    ),
    Option(
        "--nonlinear-inputs", config.ENV_NONLINEAR, "", "deprecated: Keep is --activation-gradients Exact, Bounded is Bounded"
    ),
    Option(
        "--offload",
        config.ENV_OFFLOAD,
        "Never",
        f"let what is kept wait in pinned host memory (GPUs): {_one_of(config.OFFLOAD)}",
    ),
    Option(
        "--memory-budget",
        config.ENV_MEMORY_BUDGET,
        "",
        "how much memory of the device a step may take, as 20Gi or a share in percent: packs no more than that takes",
    ),
    Option("--compare", config.ENV_COMPARE, "0", "run twice, compare gradients of so many steps with plain training's"),
    Option("--all", config.ENV_ALL_ROWS, "0", "show all rows of the report and all modules, not the largest alone", given="1"),
    Option("--verify", config.ENV_VERIFY, "0", "keep originals too and compare every copy that is read", given="1"),
)


def settings(values: Mapping[str, Any]) -> dict[str, str]:
    """Variables from a parser's values by key."""
    return {option.variable: option.setting(values[option.key]) for option in OPTIONS}


def as_typed(message: str) -> str:
    """With the options that people typed instead of the variables behind them."""
    for option in OPTIONS:
        message = re.sub(rf"\b{option.variable}\b", option.name, message)
    return message
