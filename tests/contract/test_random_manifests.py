"""The manifests that tests on clusters draw at random: a field that is new has texts of its own there."""

import random
from collections.abc import Iterator
from typing import Any

from tests.support.cluster.manifests import TEXTS, Chance
from tests.support.crds import schema


def texts_in(found: dict[str, Any], name: str = "") -> Iterator[str]:
    """Names of fields that hold any text; those of the pod template are made otherwise."""
    if name == "template" or "enum" in found:
        return
    for field, inner in found.get("properties", {}).items():
        yield from texts_in(inner, field)
    if found.get("type") == "array":
        yield from texts_in(found["items"], name)
    elif found.get("type") not in ("object", "integer", "boolean"):
        yield name


def test_every_field_of_a_spec_that_holds_any_text_has_texts_to_draw_from() -> None:
    assert set(texts_in(schema("trainingjobs", "spec"))) <= set(TEXTS)


def test_manifests_are_drawn_of_all_fields() -> None:
    chance, spec = Chance(random.Random(1)), schema("trainingjobs", "spec")
    drawn = [chance.manifest(spec)["spec"] for _ in range(3000)]
    compressions = [one["activationCompression"] for one in drawn if isinstance(one.get("activationCompression"), dict)]
    assert {one["memoryBudget"] for one in compressions if "memoryBudget" in one} >= {"20Gi", "80%"}
