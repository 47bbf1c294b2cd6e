"""Which jobs of a name there are, found without a look at all others."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from kompakt_operator.names import Names
from kompakt_operator.views import JobId

JOBS = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["u", "v", "w"]))


@given(st.lists(st.tuples(JOBS, st.none() | st.sampled_from(["x", "y", ""])), max_size=30))
def test_names_are_found_as_by_a_look_at_all_jobs(steps: list[tuple[JobId, str | None]]) -> None:
    names, plain = Names(), dict[JobId, str]()
    for job, name in steps:
        if name is None:
            names.drop(job)
            plain.pop(job, None)
        else:
            names.put(job, name)
            plain[job] = name
        for key in {(namespace, name) for namespace in "ab" for name in ["x", "y", ""]}:
            assert sorted(names.jobs(key)) == sorted(job for job, name in plain.items() if (job[0], name) == key)
        assert {job: names.key(job) for job in plain} == {job: (job[0], name) for job, name in plain.items()}
        assert all((job in names) == (job in plain) for job, _ in steps)
    for job in plain:
        names.drop(job)
    assert not names._jobs, "nothing is kept of jobs that went"


class Uncounted(dict[JobId, object]):
    """Nobody may go over all jobs."""

    def __iter__(self) -> Iterator[JobId]:
        raise AssertionError("a look at all jobs")

    items = keys = values = __iter__  # type: ignore[assignment]


def test_to_find_a_name_nobody_goes_over_all_jobs() -> None:
    names = Names()
    names.put(("a", "u"), "x")
    names._keys, names._jobs = Uncounted(names._keys), Uncounted(names._jobs)  # type: ignore[assignment, arg-type]
    assert names.jobs(("a", "x")) == [("a", "u")]
    assert names.jobs(("a", "y")) == []
