"""The CustomResourceDefinition around the schemas of spec and status."""

from kompakt_core import contract
from tools.crd.structural import Schema


def column(name: str, path: str, kind: str = "string", **more: int) -> Schema:
    """One column of `kubectl get`; with priority=1 of `kubectl get -o wide` only."""
    return {"name": name, "type": kind, "jsonPath": path, **more}


def whole_object(description: str, spec: Schema, status: Schema) -> Schema:
    """The schema of an object with a spec; the API server itself describes apiVersion, kind and metadata."""
    identity: Schema = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return {
        "type": "object",
        "description": description,
        "properties": {**identity, "spec": spec, "status": status},
        "required": ["spec"],
    }


def custom_resource(names: Schema, scope: str, schema: Schema, columns: list[Schema]) -> Schema:
    """The whole object of `crds/`."""
    version = {
        "name": contract.VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{contract.GROUP}"},
        "spec": {"group": contract.GROUP, "names": names, "scope": scope, "versions": [version]},
    }
