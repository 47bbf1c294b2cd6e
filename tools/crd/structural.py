"""Structural OpenAPI schemas of declared objects (`kompakt_core.schema.meta`), with defaults, CEL rules and descriptions."""

import json
from collections.abc import Mapping
from typing import Any

from msgspec import NODEFAULT, inspect

from kompakt_core.schema.meta import Declared, ValidationRule

Schema = dict[str, Any]
SCALARS = (str, int, bool)


def structural(kind: type[Declared]) -> Schema:
    """The schema of an object, without a description of the object itself."""
    known = inspect.type_info(kind)
    assert isinstance(known, inspect.StructType)
    properties = {field.encode_name: field_schema(field, filled=kind.FILLED) for field in known.fields}
    schema: Schema = {"type": "object", "properties": properties}
    required = sorted(field.encode_name for field in known.fields if field.required)
    if required:
        schema["required"] = required
    return schema | ruled(kind.RULES)


def described(schema: Schema, extra: Mapping[str, Any], examples: list[Any]) -> Schema:
    """The same with the text that people read: what it is, unit, default, example."""
    told = [extra["description"]]
    told += [f"Unit: {extra['unit']}."] if "unit" in extra else []
    told += [f"Default: {shown(schema['default'])}."] if "default" in schema else []
    told += [f"Example: {shown(example)}" for example in examples]
    return {"description": " ".join(told), **schema}


def shown(value: Any) -> str:
    """A value as it is written in a manifest."""
    return value if isinstance(value, str) else json.dumps(value)


def ruled(rules: tuple[ValidationRule, ...]) -> Schema:
    """Rules as the API server evaluates them."""
    found = [{"rule": rule.cel, "message": rule.sentence} for rule in rules]
    return {"x-kubernetes-validations": found} if found else {}


def field_schema(field: inspect.Field, *, filled: bool = True) -> Schema:
    """The schema of one field of an object; `filled`: the API server fills its default in."""
    node, extra, more = opened(field.type)
    schema = _type(node, extra)
    if filled and field.default is not NODEFAULT and _is_default(field.default, schema):
        schema["default"] = str(field.default) if isinstance(field.default, str) else field.default
    if not more.get("description"):
        raise ValueError(f"{field.encode_name} has no description")
    return described(schema, {**extra, **more}, more.get("examples", []))


def opened(node: inspect.Type) -> tuple[inspect.Type, Mapping[str, Any], Mapping[str, Any]]:
    """A field's type, what only our own readers know of it, and what any JSON schema has: description, examples."""
    if isinstance(node, inspect.UnionType):  # with null: absent
        node = next(part for part in node.types if not isinstance(part, inspect.NoneType))
    if isinstance(node, inspect.Metadata):
        return node.type, node.extra or {}, node.extra_json_schema or {}
    return node, {}, {}


def _is_default(value: Any, schema: Schema) -> bool:
    """Whether the API server is to fill it in: not what stands for "not said", which a user could not write."""
    if not isinstance(value, SCALARS) or value == "" or "x-kubernetes-int-or-string" in schema:
        return False
    return not isinstance(value, int) or schema.get("minimum", value) <= value


def _type(node: inspect.Type, extra: Mapping[str, Any]) -> Schema:
    if "schema" in extra:
        return dict(extra["schema"])
    schema = _plain(node, extra) | {key: extra[key] for key in ("pattern", "format") if key in extra}
    return schema | ruled(extra.get("rules", ()))


def _plain(node: inspect.Type, extra: Mapping[str, Any]) -> Schema:
    match node:
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType():
            return {"type": "integer", "format": "int64"} | _told(minimum=node.ge, maximum=node.le)
        case inspect.StrType():
            return {"type": "string"} | _told(minLength=node.min_length, maxLength=node.max_length)
        case inspect.EnumType():
            return {"type": "string", "enum": [str(word.value) for word in node.cls if word.value]}
        case inspect.LiteralType():
            return {"type": "string", "enum": list(node.values)}
        case inspect.VarTupleType():
            return _list(node, extra)
        case inspect.DictType():
            items = _type(*opened(node.value_type)[:2])
            return {"type": "object"} | ({"additionalProperties": items} if items else {})
        case inspect.StructType():
            kind: Any = node.cls
            return structural(kind)
    return {}


def _list(node: inspect.VarTupleType, extra: Mapping[str, Any]) -> Schema:
    """A list that one writer owns as a whole; with a key, one whose items are told apart by it."""
    items = {"type": "array", "items": _type(*opened(node.item_type)[:2])}
    merged: Schema = {"x-kubernetes-list-type": "atomic"}
    if "key" in extra:
        merged = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [extra["key"]]}
    return items | merged | _told(minItems=node.min_length, maxItems=node.max_length)


def _told(**bounds: int | None) -> Schema:
    return {name: value for name, value in bounds.items() if value is not None}
