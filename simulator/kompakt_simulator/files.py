"""Files that a run names: bytes, or text that may be compressed with gzip."""

import gzip
import io
import zlib
from pathlib import Path

from kompakt_core.errors import InvalidInput

_GZIP_MAGIC = b"\x1f\x8b"
_MOST_BYTES = 1 << 30


def read_bytes(path: str, what: str, wanted: str) -> bytes:
    """What is in a file. Raises InvalidInput that says `what` it was to be, why it cannot be read, and what is `wanted`."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(f"{what} {path}: {reason}; {wanted}") from error


def read_text(path: str, what: str, wanted: str) -> str:
    """The text of a file, plain or gzip. Raises InvalidInput."""
    return text_of(read_bytes(path, what, wanted), path)


def text_of(content: bytes, name: str) -> str:
    """The text in a file's bytes, plain or gzip. Raises InvalidInput that begins with `name`."""
    if content.startswith(_GZIP_MAGIC):
        content = _unpacked(content, name)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name}: byte {error.start} is no UTF-8; expected text") from error


def _unpacked(content: bytes, name: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            content = packed.read(_MOST_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"{name}: broken gzip file ({error}); expected a whole one") from error
    if len(content) == _MOST_BYTES:
        raise InvalidInput(f"{name}: more than 1 GiB unpacked; expected less")
    return content
