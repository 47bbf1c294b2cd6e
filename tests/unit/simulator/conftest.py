"""For all tests of the simulator: packages that people have installed beside it, such as a policy of their own, are not seen."""

from importlib.metadata import EntryPoint, entry_points

import pytest

from kompakt_simulator import extensions

GROUPS = (extensions.POLICY_GROUP, extensions.PLACEMENT_GROUP, extensions.TRACE_GROUP)
INSTALLED = frozenset(one for group in GROUPS for one in entry_points(group=group))


@pytest.fixture(autouse=True)
def only_what_the_test_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test itself installs is found, since it was not there before."""

    def found(group: str) -> list[EntryPoint]:
        return [one for one in entry_points(group=group) if one not in INSTALLED]

    monkeypatch.setattr(extensions, "entry_points", found)
