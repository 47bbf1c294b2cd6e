"""Reading of traces that may be wrong."""

from kompakt_core.errors import InvalidInput
from kompakt_simulator.jobs import Trace
from kompakt_simulator.traces.reading import parse_trace


def words_or_trace(content: bytes) -> str | Trace:
    """The trace, or what the reader said against it."""
    try:
        return parse_trace(content, "jobs.csv")
    except InvalidInput as error:
        return str(error)
