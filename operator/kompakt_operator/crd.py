"""Whether the API server knows what a TrainingJob is, and whether that is still the same CRD as at our start."""

import asyncio
import logging
from typing import Final

from kompakt_client.errors import ApiError, Forbidden, NotFound, Rejected
from kompakt_core import contract
from kompakt_operator.api import OperatorApi

LOOK_SECONDS: Final = 5.0
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME: Final = f"{contract.JOB_PLURAL}.{contract.GROUP}"
METADATA: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"  # of 75 kB
log = logging.getLogger(__name__)


async def is_gone(api: OperatorApi, rejected: Rejected) -> bool:
    """Whether a job that could not be read is no more: it alone, or its CRD and with it all jobs.

    That the API server knows no TrainingJobs may be a moment's truth; that there is no CRD is not. Raises as `OperatorApi.get`.
    """
    if not isinstance(rejected, NotFound) or rejected.served:
        return isinstance(rejected, NotFound)
    return await _uid(api) == ""


async def served(api: OperatorApi) -> str:
    """Which CRD of TrainingJob is served, by its uid; "" for none. Raises as `OperatorApi.get`."""
    try:
        found = await api.get(f"/apis/{contract.API_VERSION}")
    except NotFound:
        return ""
    if not any(kind.get("name") == contract.JOB_PLURAL for kind in found.get("resources") or ()):
        return ""
    uid = await _uid(api)
    return "one" if uid is None else uid


async def changed(api: OperatorApi, first: str) -> None:
    """Returns when another CRD is served than was at `first`, before kopf began.

    kopf looks for what is served when a CRD changes, and then not again: of one that is served a moment later it never
    hears. So the process begins anew.
    """
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            now = await served(api)
        except ApiError:
            continue  # that is not told by an API server that does not answer
        if now != first:
            log.warning("the CRD of TrainingJob %s: beginning anew", "came" if now else "went")
            return


async def _uid(api: OperatorApi) -> str | None:
    """Of the CRD; "" where there is none, None where that cannot be told: with rights in one namespace only."""
    try:
        found = await api.get(DEFINITIONS, accept=METADATA, fieldSelector=f"metadata.name={NAME}")
    except Forbidden:
        return None
    return next((str(item["metadata"]["uid"]) for item in found.get("items") or ()), "")
