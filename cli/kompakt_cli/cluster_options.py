"""The options of every command that asks a cluster, stated once: which cluster, and how to show the answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, ParamSpec

from kompakt_cli.access import (
    DEFAULT_NAMESPACE,
    DEFAULT_SERVICE,
    Account,
    Cluster,
    Context,
    Kubeconfig,
    Release,
    Service,
    TokenFile,
)
from kompakt_cli.output import Output, OutputFormat

_Own = ParamSpec("_Own")


@dataclass(frozen=True)
class ClusterOptions:
    """What the shared options say."""

    output: OutputFormat
    kubeconfig: str | None
    context: str | None
    release: str
    service: str
    account: str | None
    token_file: str | None

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster to ask. Raises InvalidInput where no kubeconfig can be used."""
        return Cluster(self.kubeconfig, self.context, self.release, self.service, self.account, self.token_file)


def _shared(
    output: Output = OutputFormat.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    release: Release = DEFAULT_NAMESPACE,
    service: Service = DEFAULT_SERVICE,
    account: Account = None,
    token_file: TokenFile = None,
) -> ClusterOptions:
    return ClusterOptions(output, kubeconfig, context, release, service, account, token_file)


_SHARED = signature(_shared).parameters


def asking(command: Callable[Concatenate[ClusterOptions, _Own], None]) -> Callable[..., None]:
    """A command that takes the shared options after its own, and gets what they say as its first argument."""
    return _sharing(command, _SHARED)


def reaching(command: Callable[Concatenate[ClusterOptions, _Own], None]) -> Callable[..., None]:
    """As `asking`, for a command that prints no answer: without `--output`."""
    return _sharing(command, {name: one for name, one in _SHARED.items() if name != "output"})


def _sharing(command: Callable[Concatenate[ClusterOptions, _Own], None], options: Mapping[str, Parameter]) -> Callable[..., None]:
    @wraps(command)
    def with_options(*own: _Own.args, **given: _Own.kwargs) -> None:
        shared: dict[str, Any] = {name: given.pop(name) for name in options}
        command(_shared(**shared), *own, **given)

    _, *own = signature(command).parameters.values()
    everything = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in (*own, *options.values())]
    # typer reads both: the signature for order and defaults, the annotations for types.
    with_options.__dict__["__signature__"] = Signature(everything)
    with_options.__annotations__ = {one.name: one.annotation for one in everything}
    return with_options
