"""Which jobs of a name there are: one, and older ones of which something is still being removed."""

from kompakt_operator.views import JobId
from kompakt_operator.workqueue import Key


class Names:
    """Jobs by namespace and name, and the other way round."""

    def __init__(self) -> None:
        self._keys: dict[JobId, Key] = {}
        self._jobs: dict[Key, dict[JobId, None]] = {}

    def __contains__(self, job: JobId) -> bool:
        return job in self._keys

    def key(self, job: JobId) -> Key:
        """Namespace and name; name "" for a job that is not there."""
        return self._keys.get(job, (job[0], ""))

    def jobs(self, key: Key) -> list[JobId]:
        """All of that namespace and name, in the order in which they came."""
        return list(self._jobs.get(key, ()))

    def put(self, job: JobId, name: str) -> None:
        """The job is there and has this name."""
        if self.key(job)[1] != name:
            self.drop(job)
        self._keys[job] = (job[0], name)
        self._jobs.setdefault(self._keys[job], {})[job] = None

    def drop(self, job: JobId) -> None:
        """Nothing of the job is there any more."""
        key = self._keys.pop(job, None)
        if key is not None:
            del self._jobs[key][job]
            if not self._jobs[key]:
                del self._jobs[key]
