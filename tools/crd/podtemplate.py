"""The pod template's schema, from the pinned Kubernetes' own OpenAPI document, without descriptions.

Descriptions would make the resource too large for client-side apply, which keeps a copy in an annotation (256 KiB).
"""

import json
from pathlib import Path
from typing import Any

from tools.crd.structural import Schema
from tools.kube import golang

DOCUMENT = "api/openapi-spec/v3/api__v1_openapi.json"
CORE = "io.k8s.api.core.v1."
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
# A template's metadata: what the operator hands on. Anything else would be ignored, so it is not known here.
METADATA: Schema = {
    "type": "object",
    "properties": {name: {"type": "object", "additionalProperties": {"type": "string"}} for name in ("annotations", "labels")},
}
NEVER_AT_CREATION = {f"{CORE}PodSpec": {"ephemeralContainers"}}  # the API server refuses it in a new pod
COPIED = ("type", "format", "required", "enum", "pattern", "minimum", "maximum", "x-kubernetes-map-type")
LIST_KEYS = "x-kubernetes-list-map-keys"
LIST_TYPE = "x-kubernetes-list-type"


class SourceMissing(Exception):
    """The pinned Kubernetes module cannot be had: no Go, or no way to its module."""


def find_document() -> Path:
    """The OpenAPI document inside the pinned k8s.io/kubernetes module, fetched by Go's module download where needed.

    Raises:
        SourceMissing: it cannot be had.
    """
    try:
        return golang.sources("kubernetes", "k8s.io/kubernetes") / DOCUMENT
    except golang.BuildFailed as error:
        raise SourceMissing(str(error)) from error


def pod_template(document: Path) -> Schema:
    """The structural schema of a PodTemplateSpec."""
    types = json.loads(document.read_text())["components"]["schemas"]
    schema: Schema = {
        "type": "object",
        "properties": {"metadata": METADATA, "spec": _named(types, f"{CORE}PodSpec")},
        "required": ["spec"],
    }
    schema["properties"]["spec"]["properties"]["containers"]["minItems"] = 1
    return schema


def _named(types: Schema, name: str) -> Schema:
    if name == QUANTITY:
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    if name == INT_OR_STRING:
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    if name.endswith(".ObjectMeta"):
        return METADATA
    return _schema(types, types[name], NEVER_AT_CREATION.get(name, set()))


def _reference(node: Schema) -> str | None:
    """The name of the type a node refers to; version 3 documents wrap references with a default in allOf."""
    target = node.get("$ref") or next((part["$ref"] for part in node.get("allOf", ()) if "$ref" in part), None)
    return None if target is None else str(target).removeprefix("#/components/schemas/")


def _schema(types: Schema, node: Schema, left_out: set[str]) -> Schema:
    name = _reference(node)
    if name is not None:
        return _named(types, name)
    schema: Schema = {key: node[key] for key in COPIED if key in node}
    if "properties" in node:
        schema["properties"] = {
            key: _schema(types, child, set()) for key, child in sorted(node["properties"].items()) if key not in left_out
        }
    if isinstance(node.get("additionalProperties"), dict):
        schema["additionalProperties"] = _schema(types, node["additionalProperties"], set())
    if node.get("type") == "array":
        schema |= _list(types, node)
    return schema


def _list(types: Schema, node: Schema) -> Schema:
    """A list's items and how it is merged. Keys of a map must be required or have a default."""
    items = _schema(types, node["items"], set())
    if node.get(LIST_TYPE) != "map":
        return {"items": items, LIST_TYPE: node.get(LIST_TYPE, "atomic")}
    for key in node[LIST_KEYS]:
        if key not in items.get("required", ()):
            items = _with_default(items, key, _default(types, node["items"], key))
    return {"items": items, LIST_TYPE: "map", LIST_KEYS: node[LIST_KEYS]}


def _with_default(items: Schema, key: str, value: Any) -> Schema:
    properties = items["properties"]
    return {**items, "properties": {**properties, key: {**properties[key], "default": value}}}


def _default(types: Schema, items: Schema, key: str) -> Any:
    declared = types[str(_reference(items))]["properties"][key]
    return declared.get("default", "")
