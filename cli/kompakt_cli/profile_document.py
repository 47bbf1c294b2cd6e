"""What `kompakt profile` found, as JSON, and as what a price table asks for."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from kompakt_core.profile.document import VERSION, Profile
from kompakt_core.profile.prices import Measured, Offer
from kompakt_core.profile.sensitivity import word_for


def measured(profile: Profile) -> list[Measured]:
    """Seconds of a step with data as the training gets them (where that was measured), for the price table."""
    full = profile.runs.get("warm") or profile.runs.get("all")
    found = [Measured(profile.machine, profile.devices, full.step_seconds)] if full else []
    if "one" in profile.runs and profile.devices > 1:
        found.append(Measured(profile.machine, 1, profile.runs["one"].step_seconds))
    return found


def to_json(profile: Profile, gpus: int, offered: Sequence[Offer] = ()) -> dict[str, Any]:
    """Everything that was measured and what follows from it."""
    share = profile.communication(gpus) if gpus > 1 else None
    found = profile.stalls()
    return {
        "kompaktProfile": VERSION,
        "machine": profile.machine,
        "devices": profile.devices,
        "kind": profile.kind,
        "warmUp": profile.warm_up,
        "steps": profile.steps,
        "runs": {mode: asdict(run) for mode, run in profile.runs.items()},
        "stalls": {field.name: _plain(getattr(found, field.name)) for field in fields(found)},
        "gpus": gpus,
        "communication": share,
        "sensitivity": None if share is None else word_for(share),
        "notes": list(profile.notes),
        "offers": [_offer(one) for one in offered],
    }


def _plain(stall: Any) -> dict[str, Any] | None:
    return None if stall is None else asdict(stall)


def _offer(one: Offer) -> dict[str, Any]:
    return {**asdict(one.price), "hours": one.hours, "cost": one.cost, "in_time": one.in_time}
