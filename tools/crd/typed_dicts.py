"""Python types of a resource's objects, for the SDK: a TypedDict for each declared object, with what each field is."""

import keyword
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

from msgspec import inspect

from kompakt_core.schema.meta import Declared
from tools.crd.structural import Schema, field_schema, opened
from tools.docs.modules import first_sentence

ROOT: Final = Path(__file__).resolve().parents[2]
MADE: Final = "# Made by `python -m tools.crd`; do not edit.\n"
WIDTH: Final = 120  # of a field's words: what is left of a line beside indentation and quotes
SCALARS: Final = {"boolean": "bool", "integer": "int", "string": "str"}


def module(what: str, kind: type[Declared]) -> str:
    """The text of a module with the types of `kind` and of all objects in it; `what`: the first sentence of its docstring."""
    made = "\n\n".join(_typed_dict(one) for one in _objects(kind))
    return _formatted(f'{MADE}"""{what}"""\n\nfrom typing import Any, Literal, NotRequired, TypedDict\n\n\n{made}')


def _formatted(text: str) -> str:
    """As `make check` wants it."""
    command = [str(Path(sys.executable).parent / "ruff"), "format", "--quiet", "--stdin-filename=models.py", "-"]
    return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=True).stdout


def _objects(kind: type[Declared]) -> list[inspect.StructType]:
    """The object and all in it, each once, after those that it has as fields."""
    found: dict[type, inspect.StructType] = {}

    def collect(one: type[Declared]) -> None:
        known = inspect.type_info(one)
        assert isinstance(known, inspect.StructType)
        for inner in filter(None, map(_struct, known.fields)):
            if inner not in found:
                collect(inner)
        found[one] = known

    collect(kind)
    return list(found.values())


def _struct(field: inspect.Field) -> Any:
    """The class of the objects in a field, be it one or a list; None where it has none."""
    inner = opened(field.type)[0]
    inner = opened(inner.item_type)[0] if isinstance(inner, inspect.VarTupleType) else inner
    return inner.cls if isinstance(inner, inspect.StructType) else None


def _typed_dict(node: inspect.StructType) -> str:
    name, told = _name(node.cls), first_sentence(" ".join((node.cls.__doc__ or "").split()))
    if any(keyword.iskeyword(field.encode_name) for field in node.fields):  # no attribute may be called `from`
        fields = "".join(f"{_comment(field)}    {field.encode_name!r}: {_wanted(field)},\n" for field in node.fields)
        return f"# {told}\n{name} = TypedDict({name!r}, {{\n{fields}}})\n"
    fields = "".join(f"    {field.encode_name}: {_wanted(field)}\n{_docstring(field)}" for field in node.fields)
    return f'class {name}(TypedDict):\n    """{told}"""\n\n{fields}'


def _name(kind: Any) -> str:
    return f"{kind.__name__}Dict"


def _wanted(field: inspect.Field) -> str:
    """What type checkers know of a field."""
    struct, schema = _struct(field), field_schema(field, filled=False)
    kind = _type(schema) if struct is None else f"list[{_name(struct)}]" if schema.get("type") == "array" else _name(struct)
    return kind if field.required else f"NotRequired[{kind}]"


def _type(schema: Schema) -> str:
    if "x-kubernetes-int-or-string" in schema:
        return "int | str"
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    if "items" in schema:
        return f"list[{_type(schema['items'])}]"
    if "additionalProperties" in schema:
        return f"dict[str, {_type(schema['additionalProperties'])}]"
    return SCALARS.get(schema.get("type", ""), "dict[str, Any]")


def _words(field: inspect.Field) -> Iterator[str]:
    yield from wrap(field_schema(field)["description"], WIDTH, break_long_words=False, break_on_hyphens=False)


def _docstring(field: inspect.Field) -> str:
    lines = "\n    ".join(line.replace("\\", "\\\\") for line in _words(field))
    end = "\n    " if "\n" in lines or lines.endswith('"') else ""
    return f'    """{lines}{end}"""\n'


def _comment(field: inspect.Field) -> str:
    return "".join(f"    # {line}\n" for line in _words(field))
