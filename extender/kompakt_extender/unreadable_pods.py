"""Pods that cannot be read, as a version of Kubernetes to come may send them: what is bound holds GPUs all the same."""

import logging
from typing import Any, TypeVar

import msgspec

from kompakt_core import contract
from kompakt_core.contract import bound_gpus
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import PodUid
from kompakt_extender.objects import NULL, Meta, Texts
from kompakt_extender.project import ANNOTATIONS, job_uid, node_name, read_pod
from kompakt_extender.views import PodView

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    labels: msgspec.Raw = NULL
    annotations: msgspec.Raw = NULL
    owner_references: msgspec.Raw = NULL


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class _Bound(msgspec.Struct):
    """The least that tells who a pod is and which node it is on."""

    metadata: _Meta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


_BOUND = msgspec.json.Decoder(_Bound)
_TEXTS = msgspec.json.Decoder(Texts | None)
_OWNERS = msgspec.json.Decoder(list[dict[str, Any]] | None)


def read_pod_or_holding(raw: bytes, resource: str = contract.RESOURCE) -> PodView:
    """A pod's JSON; of one that cannot be read and is bound, what it holds of its node.

    Raises:
        InvalidInput, ValueError, msgspec.DecodeError: it cannot be read, and is on no node.
    """
    try:
        return read_pod(raw, resource)
    except (InvalidInput, ValueError, msgspec.DecodeError) as error:
        found = _holding(raw, resource, str(error))
        if found is None:
            raise
        place = f"{found.namespace}/{found.name}"
        _LOG.error("pod %s cannot be read, what it holds of node %s stays taken: %s", place, found.node, error)
        return found


def _holding(raw: bytes, resource: str, problem: str) -> PodView | None:
    """The GPUs written on it. Where none can be read, one unknown one: then its node is given to nobody until its device plugin
    reports what the pod holds.
    """
    pod = _decoded(_BOUND, raw)
    if pod is None or not pod.spec.node_name:
        return None
    meta = _meta(pod.metadata)
    annotations = {key: text for key, text in (meta.annotations or {}).items() if key in ANNOTATIONS}
    written = bound_gpus.uuids(annotations)
    return PodView(
        PodUid(meta.uid),
        meta.namespace,
        meta.name,
        node_name(pod.spec.node_name),
        phase=pod.status.phase,
        gpus=max(1, len(written)) if written or resource.encode() in raw else 0,
        problem=problem,
        job_uid=job_uid(meta),
        labels={key: text for key, text in (meta.labels or {}).items() if key in contract.WORKER_LABELS},
        annotations=annotations,
    )


def _meta(found: _Meta) -> Meta:
    """What of it can be read."""
    return Meta(
        found.name,
        found.namespace,
        found.uid,
        labels=_decoded(_TEXTS, found.labels),
        annotations=_decoded(_TEXTS, found.annotations),
        owner_references=_decoded(_OWNERS, found.owner_references),
    )


def _decoded(decoder: "msgspec.json.Decoder[_T]", raw: bytes | msgspec.Raw) -> _T | None:
    try:
        return decoder.decode(raw)
    except (ValueError, msgspec.DecodeError):
        return None
