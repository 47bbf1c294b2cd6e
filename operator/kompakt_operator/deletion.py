"""Deletes objects of a job and of nobody else: the very object that was seen to be the job's, in the state in which it was."""

from typing import Any, Final

from kompakt_client.errors import Conflict, NotFound
from kompakt_core.contract import job_owner
from kompakt_core.contract.job_owner import JobOwner
from kompakt_operator.api import OperatorApi

Object = dict[str, Any]
LOOKS: Final = 3  # at an object that others keep changing


async def delete_owned(
    api: OperatorApi, path: str, owner: JobOwner, uid: str = "", version: str = "", grace: int | None = None
) -> None:
    """Delete what stands at the path if it belongs to the job; if it is gone, going or another's, all is as it should be.

    `uid`: only that object; `version`: how it was when it was seen to be the job's. Where it was changed since, and where no
    version is known, it is looked at first. Raises an ApiError: Conflict where it was changed each time again.
    """
    for _ in range(LOOKS):
        if not version:
            meta = await _metadata(api, path)
            if not _to_go(meta, owner, uid):
                return
            uid, version = meta["uid"], meta["resourceVersion"]
        try:
            await api.delete(path, uid, version, grace=grace)
        except NotFound:
            return
        except Conflict:
            version = ""
        else:
            return
    raise Conflict(f"{path} was changed whenever it was to be deleted", 409, "Conflict")


async def _metadata(api: OperatorApi, path: str) -> Object:
    """Empty where nothing stands there."""
    try:
        return dict((await api.get(path))["metadata"])
    except NotFound:
        return {}


def _to_go(meta: Object, owner: JobOwner, uid: str) -> bool:
    return job_owner.readable(meta) == owner and uid in ("", meta["uid"]) and not meta.get("deletionTimestamp")
