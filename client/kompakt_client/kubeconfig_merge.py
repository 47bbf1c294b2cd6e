"""Several kubeconfigs as one, as kubectl merges them: of each name, and of the current context, the first file counts.

https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from kompakt_client.kubeconfig import LARGEST, parsed
from kompakt_client.object_fields import ObjectFields
from kompakt_core.errors import InvalidInput

# Of each list: what its items hold, and which fields of that are paths beside the file that they stand in.
_LISTS: Final = {
    "clusters": ("cluster", ("certificate-authority",)),
    "contexts": ("context", ()),
    "users": ("user", ("client-certificate", "client-key", "tokenFile")),
}


@dataclass(frozen=True, slots=True)
class KubeconfigFile:
    """A kubeconfig as it stands at an absolute path."""

    path: str
    text: str


def merged(files: Iterable[KubeconfigFile]) -> dict[str, Any]:
    """One kubeconfig whose paths are all absolute. Raises InvalidInput that names the file: no YAML, or no kubeconfig."""
    current, named = "", {kind: dict[str, Any]() for kind in _LISTS}
    for file in files:
        try:
            top = ObjectFields({} if (document := parsed(file.text)) is None else document, "")  # an empty file says nothing
            current = current or top.text("current-context", "")
            for kind, found in named.items():
                for name, item in _items(top, kind, PurePath(file.path).parent):
                    found.setdefault(name, item)
        except InvalidInput as error:
            raise InvalidInput(f"{file.path}: {error}") from None
    return {"current-context": current, **{kind: list(found.values()) for kind, found in named.items()}}


def _items(top: ObjectFields, kind: str, folder: PurePath) -> Iterable[tuple[str, dict[str, Any]]]:
    """The items of one list by name; of the same name within one file the first, as when it is read alone."""
    inner, paths = _LISTS[kind]
    for item, path in top.items(kind, high=LARGEST):
        name: str = ObjectFields(item, path).text("name", "")
        held = item.get(inner)
        yield name, {"name": name, inner: _anchored(held, paths, folder) if isinstance(held, Mapping) else held}


def _anchored(held: Mapping[str, Any], paths: tuple[str, ...], folder: PurePath) -> dict[str, Any]:
    """With absolute paths; what is no text is left for the reader to refuse."""
    found = {**held, **{name: _absolute(held[name], folder) for name in paths if name in held}}
    program = held.get("exec")
    if isinstance(program, Mapping) and "/" in str(program.get("command", "")):  # a bare name is looked up in PATH
        found["exec"] = {**program, "command": _absolute(program["command"], folder)}
    return found


def _absolute(path: Any, folder: PurePath) -> Any:
    return str(folder / path) if isinstance(path, str) and path else path
