"""Lists and watch lines as bytes in, objects with a view out."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from kompakt_client.errors import ApiError, Unreachable, error_of
from kompakt_client.pages import PAGE_BYTES
from kompakt_client.store import Index, StoredObject, View
from kompakt_core.errors import InvalidInput

_LOG = logging.getLogger(__name__)
Decoded = TypeVar("Decoded")


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str | None = msgspec.field(default=None, name="continue")


class RawPage(msgspec.Struct):
    """One page of a list; of its items nothing is decoded yet."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class WatchLine(msgspec.Struct):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class _BareMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Bare(msgspec.Struct):
    metadata: _BareMeta


_PAGE = msgspec.json.Decoder(RawPage)
_LINE = msgspec.json.Decoder(WatchLine)
_BARE = msgspec.json.Decoder(_Bare)


@dataclass(frozen=True, slots=True)
class WatchedKind(Generic[View]):
    """What to list and watch, and how an object becomes a view (None: it is not kept).

    `watch_seconds`: the server ends the watch after that; `silence_seconds` without a byte mean that the connection is dead.
    """

    name: str
    path: str
    read: Callable[[bytes], View | None]
    query: Mapping[str, str | int] = field(default_factory=dict)
    optional: bool = False
    watch_seconds: int = 55
    silence_seconds: float = 70.0
    page: int = 500
    page_bytes: int = PAGE_BYTES
    indexes: Mapping[str, Index[Any]] = field(default_factory=dict)

    def stored(self, raw: bytes) -> StoredObject[View]:
        """An object as the API server sends it; one that cannot be read is logged and not kept."""
        meta = decoded(_BARE, raw).metadata
        bare: StoredObject[View] = StoredObject(meta.namespace, meta.name, meta.uid, version_of(meta.resource_version))
        try:
            return StoredObject(meta.namespace, meta.name, meta.uid, bare.version, self.read(raw))
        except (InvalidInput, ValueError, msgspec.DecodeError) as error:
            _LOG.error("%s %s/%s is left out: %s", self.name, meta.namespace, meta.name, error)
            return bare

    def page_of(self, body: bytes) -> tuple[Sequence[StoredObject[View]], int, str]:
        """Objects, version and token of one page."""
        page = decoded(_PAGE, body)
        objects = [self.stored(bytes(raw)) for raw in page.items or ()]
        return objects, version_of(page.metadata.resource_version), page.metadata.continue_token or ""

    def event_of(self, line: bytes) -> tuple[str, StoredObject[View]]:
        """Type and object of one line. Raises the ApiError that an ERROR stands for."""
        event = decoded(_LINE, line)
        raw = bytes(event.object)
        if event.type == "ERROR":
            raise watch_error(raw)
        if event.type in ("BOOKMARK", "DELETED"):
            meta = decoded(_BARE, raw).metadata
            return event.type, StoredObject(meta.namespace, meta.name, meta.uid, version_of(meta.resource_version))
        return event.type, self.stored(raw)


def watch_error(raw: bytes) -> ApiError:
    """The error that the Status object of an ERROR line stands for."""
    code = decoded(_CODE, raw).code
    return (error_of(code, raw) if code else None) or Unreachable("the watch ended with an error without a code")


class _Coded(msgspec.Struct):
    code: int = 0


_CODE = msgspec.json.Decoder(_Coded)


def decoded(decoder: "msgspec.json.Decoder[Decoded]", data: bytes) -> Decoded:
    """What the bytes say. Raises Unreachable: an API server, or something before it, that sends nonsense may be well later."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreachable(f"nonsense from the API server: {error}") from error


def version_of(text: str) -> int:
    """A resourceVersion as a number: those of one kind may be compared (KEP-5504). 0 for none."""
    return int(text) if text.isascii() and text.isdigit() else 0
