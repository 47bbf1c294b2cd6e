"""TrainingJobs that are to be made, from the files that somebody wrote."""

import sys
from collections.abc import Iterable
from pathlib import Path

import yaml

from kompakt.new_job import Document, checked
from kompakt_core import contract
from kompakt_core.errors import InvalidInput


def read_jobs(paths: Iterable[str]) -> list[Document]:
    """The TrainingJobs of YAML or JSON files; - is standard input. Raises InvalidInput, also for jobs that would be refused."""
    return [job for path in paths for job in _jobs_of(path)]


def _jobs_of(path: str) -> list[Document]:
    where = "standard input" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
        found = [one for one in yaml.safe_load_all(text) if one is not None]
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise InvalidInput(f"{where}: {error}; give a file with TrainingJobs") from error
    for one in found:
        if not isinstance(one, dict) or one.get("kind") != contract.JOB_KIND:
            kind = one.get("kind", "an object without kind") if isinstance(one, dict) else type(one).__name__
            raise InvalidInput(f"{where}: {kind}; only TrainingJobs are submitted; `kubectl apply -f` takes any kind")
    if not found:
        raise InvalidInput(f"{where}: no object; give a file with TrainingJobs")
    return [checked(one, where) for one in found]


def in_namespace(job: Document, asked: str | None, default: str) -> str:
    """Where a job is made: where its manifest says, else as asked. Raises InvalidInput where the two differ."""
    written = job["metadata"].get("namespace")
    if written and asked and written != asked:
        raise InvalidInput(f"{job['metadata'].get('name')}: the manifest says namespace {written}, --namespace says {asked}")
    return str(written or asked or default)


def environment(pairs: Iterable[str]) -> dict[str, str]:
    """KEY=VALUE pairs. Raises InvalidInput for others."""
    found = dict(pair.partition("=")[::2] for pair in pairs)
    if wrong := next((pair for pair in pairs if "=" not in pair or pair.startswith("=")), None):
        raise InvalidInput(f"--env: {wrong!r}; right would be KEY=VALUE")
    return found
