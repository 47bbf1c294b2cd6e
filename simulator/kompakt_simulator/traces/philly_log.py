"""The job log of the Philly traces as Microsoft published it: `cluster_job_log`, a JSON list of jobs with their attempts.

Source of the layout: README of msr-fiddle/philly-traces. Work of a job: the running time of its attempts together; its GPUs:
those of its last attempt. Attempts without a beginning or an end (an error of logging, or still running) count for nothing,
and jobs without any other are left out.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kompakt_core.errors import InvalidInput
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.traces.fields import timestamp

WORK = "start_time to end_time of its attempts, in seconds"
_NONE = (None, "", "None")  # how the log says that it does not know a time


def is_log(text: str) -> bool:
    """Whether a text is a JSON list, as no other format is."""
    return text[:1000].lstrip().startswith("[")


def jobs_of(text: str, name: str) -> tuple[list[TraceJob], int]:
    """The jobs that ran, numbered by their place in the log from 0, and how many stand there. Raises InvalidInput."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name}: {error}; expected a JSON list of jobs, cluster_job_log of the Philly traces") from None
    jobs = (_job(number, entry, f"{name}, entry {number + 1}") for number, entry in enumerate(raw))
    return [job for job in jobs if job is not None], len(raw)


def _job(number: int, entry: object, at: str) -> TraceJob | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("attempts"), list):
        raise InvalidInput(f"{at}: got {entry!r:.80}; expected an object with submitted_time and a list of attempts")
    at += f" ({entry.get('jobid')!r:.60})"
    ran = [(_time(one, "end_time", at), _time(one, "start_time", at), one) for one in _objects(entry["attempts"], at)]
    spans = [(end - start, one) for end, start, one in ran if end is not None and start is not None]
    duration = sum(span for span, _ in spans)
    if not any(span for span, _ in spans):
        return None
    submit = _time(entry, "submitted_time", at)
    gpus = sum(len(_gpus(each, at)) for each in _objects(spans[-1][1].get("detail"), at))
    if submit is None or min(span for span, _ in spans) < 0 or not 1 <= gpus <= 1_000_000:
        raise InvalidInput(
            f"{at}: submitted {entry.get('submitted_time')!r:.40}, ran {duration / 1000:g} s on {gpus} GPUs; "
            "expected a date and time, attempts that end after they start, and 1 to 1000000 GPUs"
        )
    return TraceJob(number, submit, Milliseconds(duration), gpus)


def _objects(value: object, at: str) -> Iterator[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InvalidInput(f"{at}: got {value!r:.80}; expected a list of attempts, each with a list of machines as detail")
    yield from value


def _gpus(machine: Mapping[str, Any], at: str) -> list[object]:
    gpus = machine.get("gpus")
    if not isinstance(gpus, list):
        raise InvalidInput(f"{at}: gpus: got {gpus!r:.80}; expected a list of GPUs of one machine")
    return gpus


def _time(entry: Mapping[str, Any], key: str, at: str) -> Milliseconds | None:
    text = entry.get(key)
    if text in _NONE:
        return None
    try:
        return timestamp(str(text))
    except ValueError as error:
        raise InvalidInput(f"{at}, {key}: got {str(text)[:80]!r}; expected {error}") from None
