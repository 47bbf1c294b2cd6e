"""Small builders for structural OpenAPI schemas with CEL rules."""

from collections.abc import Iterable
from typing import Any

Schema = dict[str, Any]
# As apimachinery's Quantity accepts it, without sign: none of our quantities can be negative.
QUANTITY_PATTERN = r"^([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})(([KMGTPE]i|[numkMGTPE])|[eE][+-]?[0-9]{1,2})?$"


def obj(properties: Schema, *, required: Iterable[str] = (), **more: Any) -> Schema:
    """An object with these properties."""
    schema: Schema = {"type": "object", "properties": properties, **more}
    names = sorted(required)
    return {**schema, "required": names} if names else schema


def text(**more: Any) -> Schema:
    return {"type": "string", **more}


def word(choices: Iterable[str], default: str | None = None) -> Schema:
    """One word of an enumeration."""
    schema: Schema = {"type": "string", "enum": [str(choice) for choice in choices]}
    return schema if default is None else {**schema, "default": str(default)}


def whole(low: int = 0, high: int | None = None, **more: Any) -> Schema:
    """An integer between `low` and `high`, both included."""
    bounds = {"minimum": low} if high is None else {"minimum": low, "maximum": high}
    return {"type": "integer", "format": "int64", **bounds, **more}


def flag(**more: Any) -> Schema:
    return {"type": "boolean", **more}


def moment() -> Schema:
    return {"type": "string", "format": "date-time"}


def quantity() -> Schema:
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY_PATTERN,
        "x-kubernetes-int-or-string": True,
    }


def atomic(items: Schema, **more: Any) -> Schema:
    """A list that one writer owns as a whole."""
    return {"type": "array", "items": items, "x-kubernetes-list-type": "atomic", **more}


def mapped(items: Schema, key: str, **more: Any) -> Schema:
    """A list whose items are told apart by `key`; the API server refuses the same key twice."""
    return {"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key], **more}


def rule(cel: str, message: str) -> Schema:
    return {"rule": cel, "message": message}


def ruled(schema: Schema, *rules: Schema) -> Schema:
    return {**schema, "x-kubernetes-validations": list(rules)}


def conditions() -> Schema:
    """Conditions in the standard shape (metav1.Condition)."""
    item = obj(
        {
            "type": text(maxLength=316),
            "status": word(("True", "False", "Unknown")),
            "reason": text(maxLength=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
            "message": text(maxLength=32768),
            "lastTransitionTime": moment(),
            "observedGeneration": whole(),
        },
        required=("type", "status", "reason", "message", "lastTransitionTime"),
    )
    return mapped(item, "type")


def column(name: str, path: str, kind: str = "string", **more: Any) -> Schema:
    return {"name": name, "type": kind, "jsonPath": path, **more}


def crd(names: Schema, scope: str, schema: Schema, columns: list[Schema]) -> Schema:
    """The CustomResourceDefinition around one version's schema."""
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.kompakt.dev"},
        "spec": {"group": "kompakt.dev", "names": names, "scope": scope, "versions": [version]},
    }
