"""The count of pods behind our gate follows each change, and costs nothing for pods that do not change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core import contract
from kompakt_core.contract.gang_member import GangMember
from kompakt_core.ids import PodUid
from kompakt_extender.jobs import Jobs
from kompakt_extender.project_gang import read_gang
from kompakt_extender.views import PodView, gang_uid

GANGS = ("eval", "train")
OBJECT = read_gang(b'{"metadata": {"name": "eval", "namespace": "ml", "uid": "u"}, "spec": {"size": 2}}')


def gang_pod(uid: str, gang: str = GANGS[0], gates: tuple[str, ...] = (contract.GATE,), phase: str = "Pending") -> PodView:
    of = gang_uid("ml", gang)
    return PodView(PodUid(uid), "ml", uid, phase=phase, ours=True, gates=gates, job_uid=of, gang=GangMember(2))


PODS = st.builds(
    gang_pod,
    st.sampled_from("abc"),
    st.sampled_from(GANGS),
    st.sampled_from([(), (contract.GATE,), ("example.com/quota",)]),
    st.sampled_from(["Pending", "Failed"]),
)


@given(st.lists(st.tuples(st.booleans(), PODS)))
def test_it_is_what_a_walk_over_all_pods_finds(changes: list[tuple[bool, PodView]]) -> None:
    jobs = Jobs()
    jobs.set_job(OBJECT)
    for there, pod in changes:
        (jobs.set_pod if there else jobs.remove_pod)(pod)
        assert jobs.gated_pods() == sum(one.waits_gated for one in jobs.pods_of(gang_uid("ml", GANGS[0])))


def test_to_ask_for_it_looks_at_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each scrape asks, on the loop that kube-scheduler waits for."""
    jobs = Jobs()
    jobs.set_job(OBJECT)
    for uid in "abc":
        jobs.set_pod(gang_pod(uid))
    monkeypatch.setattr(PodView, "gates", property(lambda pod: pytest.fail("a pod was looked at")))
    assert jobs.gated_pods() == 3
