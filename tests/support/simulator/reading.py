"""Reading of traces that may be wrong."""

from kompakt_core.errors import InvalidInput
from kompakt_simulator.reading import parse_trace
from kompakt_simulator.trace import Trace


def words_or_trace(content: bytes) -> str | Trace:
    """The trace, or what the reader said against it."""
    try:
        return parse_trace(content, "jobs.csv")
    except InvalidInput as error:
        return str(error)
