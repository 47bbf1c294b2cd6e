"""TrainingJob in two versions, for trying how one is added, stored and removed: today's, and a next one with a field more."""

import json
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from kompakt_core.contract import GROUP, JOB_PLURAL, VERSION
from tests.support.crds import crd
from tools.kube.session import ClusterSession

NEXT = "v1alpha2"
FIELD = "throwAway"
IN_BOTH = {VERSION: FIELD, NEXT: FIELD}
NAME = f"{JOB_PLURAL}.{GROUP}"
Object = dict[str, Any]


def definition(stored: str, fields: Mapping[str, str] = IN_BOTH, conversion: Object | None = None) -> Object:
    """The CRD with both versions, of which one is stored; `fields`: the throw-away field of a version's spec, by version."""
    found = crd(JOB_PLURAL)
    (today,) = found["spec"]["versions"]
    found["spec"]["versions"] = [_version(today, name, name == stored, fields.get(name)) for name in (VERSION, NEXT)]
    found["spec"]["conversion"] = conversion or {"strategy": "None"}
    return found


def without(name: str, found: Object) -> Object:
    """The CRD without that version."""
    found["spec"]["versions"] = [version for version in found["spec"]["versions"] if version["name"] != name]
    return found


def _version(today: Object, name: str, stored: bool, field: str | None) -> Object:
    version: Object = {**deepcopy(today), "name": name, "storage": stored}
    if field:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][field] = {"type": "string", "maxLength": 63}
    return version


def stored_as(cluster: ClusterSession) -> dict[str, str]:
    """In which version each TrainingJob lies in etcd, by name: read there, since the API server converts what it shows."""
    prefix = f"/registry/{GROUP}/{JOB_PLURAL}/".encode()
    asked = {"key": b64encode(prefix).decode(), "range_end": b64encode(prefix[:-1] + b"0").decode()}
    url = f"http://{cluster.plane.addresses.host}:{cluster.plane.addresses.etcd}/v3/kv/range"
    with urllib.request.urlopen(url, data=json.dumps(asked).encode(), timeout=30) as answer:
        found = [json.loads(b64decode(one["value"])) for one in json.load(answer).get("kvs", ())]
    return {one["metadata"]["name"]: one["apiVersion"].rpartition("/")[2] for one in found}
