"""What the watches have shown, projected to what decisions need: worker pods and Services by job."""

from collections.abc import Iterable, Mapping
from typing import Any

from kompakt_core import contract
from kompakt_core.job.pods import PodView, read_pod


def job_uid(obj: Mapping[str, Any]) -> str:
    """The job an object belongs to, by its label; "" for none."""
    return str(((obj.get("metadata") or {}).get("labels") or {}).get(contract.LABEL_JOB_UID, ""))


class Cache:
    """Pods and Service names by job uid. Holds views, never whole objects."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, PodView]] = {}
        self._services: dict[str, dict[str, str]] = {}

    def pods(self, uid: str) -> tuple[PodView, ...]:
        return tuple(self._pods.get(uid, {}).values())

    def services(self, uid: str) -> tuple[str, ...]:
        return tuple(self._services.get(uid, {}))

    def see_pod(self, obj: Mapping[str, Any], *, gone: bool = False) -> None:
        view = read_pod(obj)
        if view is None:
            return
        own = self._pods.setdefault(job_uid(obj), {})
        if not gone:
            own[view.name] = view
        elif view.name in own and own[view.name].uid == view.uid:
            del own[view.name]
            self._drop_empty(self._pods, job_uid(obj))

    def see_service(self, obj: Mapping[str, Any], *, gone: bool = False) -> None:
        meta = obj["metadata"]
        own = self._services.setdefault(job_uid(obj), {})
        if not gone:
            own[meta["name"]] = meta["uid"]
        elif own.get(meta["name"]) == meta["uid"]:
            del own[meta["name"]]
            self._drop_empty(self._services, job_uid(obj))

    def replace_pods(self, uid: str, objects: Iterable[Mapping[str, Any]]) -> None:
        """One job's pods as just listed: what the watch has missed is mended."""
        self._pods.pop(uid, None)
        for obj in objects:
            self.see_pod(obj)

    def replace_all_pods(self, objects: Iterable[Mapping[str, Any]]) -> None:
        self._pods.clear()
        for obj in objects:
            self.see_pod(obj)

    @staticmethod
    def _drop_empty(table: dict[str, Any], uid: str) -> None:
        if not table[uid]:
            del table[uid]
