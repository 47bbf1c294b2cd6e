"""What `kompakt profile` found, as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from kompakt_core.profile.document import VERSION, Profile, ProfiledRun, read_run
from kompakt_core.profile.sensitivity import word_for

STILL_CACHED: Final = 0.05  # a larger share of the data's files makes a cold run doubtful
UNTOLD: Final = "without --data nothing is known of the page cache: what the run on real data read may have come from the disk"
# What the start-up hook says of a run -> our names for it (the runtime repeats them; a contract test compares).
FIELDS: Final = {
    "stepSeconds": "step_seconds",
    "parts": "parts",
    "dataSeconds": "data_seconds",
    "loaders": "loaders",
    "gradientBytes": "gradient_bytes",
    "ranks": "ranks",
}


def told_run(said: Mapping[str, Any], where: str) -> ProfiledRun:
    """A run in the start-up hook's words. Raises InvalidInput that names `where` and the field."""
    return read_run({field: said.get(name) for name, field in FIELDS.items()}, where)


def cold_note(cached: object) -> str:
    """What makes the cold run doubtful, empty for nothing; `cached`: the share of its files that stayed in the page cache."""
    if isinstance(cached, int | float) and cached <= STILL_CACHED:
        return ""
    share = f"{cached:.0%}" if isinstance(cached, int | float) else "an unknown share"
    return f"{share} of the data's files stayed in the page cache before the cold run, so its fetch stall is too low"


def to_json(profile: Profile, gpus: int) -> dict[str, Any]:
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
        "halfMachines": profile.half_machines,
        "halfMachine": profile.half_machine,
    }


def _plain(stall: Any) -> dict[str, Any] | None:
    return None if stall is None else asdict(stall)
