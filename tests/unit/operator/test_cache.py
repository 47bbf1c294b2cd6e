"""What the operator remembers of pods, Services and GPUs, whatever order watches and lists arrive in."""

from typing import Any

from kompakt_core import contract
from kompakt_core.job.pods import WorkerPod
from kompakt_operator.cache import Cache, Entry, Listed, pod_entry
from kompakt_operator.workqueue import Key

KEY: Key = ("ml", "j")
JOB = ("ml", "u")


def names(cache: Cache) -> list[str]:
    return [view.name for view in cache.pods(JOB)]


def pod(name: str, uid: str, phase: str = "Running", version: int = 1) -> dict[str, Any]:
    labels = {
        contract.LABEL_JOB_UID: "u",
        contract.LABEL_JOB_NAME: "j",
        contract.LABEL_ATTEMPT: "1",
        contract.LABEL_WORKER_INDEX: "0",
        contract.LABEL_ROLE: "w",
    }
    notes = {contract.ANN_GPUS: "GPU-a,GPU-b"}
    meta = {"name": name, "namespace": "ml", "uid": uid, "labels": labels, "annotations": notes, "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {"nodeName": "n1"}, "status": {"phase": phase}}


def listed(version: int, *pods: dict[str, Any]) -> Listed[Entry[WorkerPod]]:
    """Pods as a list of that version shows them."""
    return Listed([entry for entry in map(pod_entry, pods) if entry is not None], version)


def test_the_end_of_a_pod_does_not_remove_its_successor_of_the_same_name() -> None:
    cache = Cache()
    cache.see_pod(pod("p", "old"))
    cache.see_pod(pod("p", "new"))
    cache.see_pod(pod("p", "old"), gone=True)
    assert [view.uid for view in cache.pods(JOB)] == ["new"]
    cache.see_pod(pod("p", "new"), gone=True)
    assert cache.pods(JOB) == ()


def test_a_fresh_list_replaces_what_the_watch_has_missed() -> None:
    cache = Cache()
    cache.see_pod(pod("gone", "a"))
    assert cache.replace_pods(listed(7, pod("here", "b"))) == {KEY}
    assert names(cache) == ["here"]
    assert cache.replace_pods(listed(8), ("ml", "another")) == set(), "a list of one job's pods says nothing of others"
    assert names(cache) == ["here"]


def test_a_list_takes_away_nothing_that_is_newer_than_it() -> None:
    cache = Cache()
    cache.see_pod(pod("made-meanwhile", "a", version=9))
    assert cache.replace_pods(listed(7)) == set()
    assert names(cache) == ["made-meanwhile"]


def test_an_older_version_of_a_pod_says_nothing() -> None:
    cache = Cache()
    cache.see_pod(pod("p", "a", "Succeeded", version=9))
    cache.replace_pods(listed(5, pod("p", "a", "Running", version=5)))
    assert [view.phase for view in cache.pods(JOB)] == ["Succeeded"]
    cache.see_pod(pod("p", "b", "Pending", version=4))
    assert [view.uid for view in cache.pods(JOB)] == ["b"], "another pod: its versions are its own"


def test_a_pod_that_goes_while_a_list_is_under_way_does_not_come_back_with_it() -> None:
    cache = Cache()
    cache.see_pod(pod("p", "a"))
    with cache.listing():
        cache.see_pod(pod("p", "a"), gone=True)
        assert cache.replace_pods(listed(7, pod("p", "a"))) == set()
    assert names(cache) == []


def test_a_service_that_vanished_unseen_is_known_to_be_missing() -> None:
    cache = Cache()
    meta = {"name": "j-a1", "namespace": "ml", "uid": "s", "labels": pod("p", "a")["metadata"]["labels"]}
    cache.see_service({"metadata": {**meta, "resourceVersion": "3"}})
    assert cache.replace_services(Listed([], 4)) == {KEY}
    assert cache.services(JOB) == ()


def test_a_strangers_pod_with_a_jobs_labels_in_another_namespace_is_no_worker_of_it() -> None:
    cache = Cache()
    forged = pod("p", "a")
    forged["metadata"]["namespace"] = "elsewhere"
    cache.see_pod(forged)
    assert cache.pods(JOB) == ()


def topology(*unhealthy: str, node: str = "n1") -> dict[str, Any]:
    gpus = [
        {"uuid": uuid, "index": i, **({"health": "Unhealthy", "xid": 79} if uuid in unhealthy else {"health": "Healthy"})}
        for i, uuid in enumerate(("GPU-a", "GPU-b", "GPU-c"))
    ]
    return {"metadata": {"name": node}, "spec": {"gpus": gpus}}


def test_a_gpu_that_falls_sick_calls_for_a_look_at_the_job_that_holds_it_and_for_no_other() -> None:
    cache = Cache()
    cache.see_pod(pod("p", "a"))
    (view,) = cache.pods(JOB)
    assert cache.see_topology(topology()) == []
    assert cache.see_topology(topology("GPU-c")) == []
    assert cache.see_topology(topology("GPU-b", "GPU-c")) == [KEY]
    assert cache.unhealthy_reason(view) == "GPU-b (index 1): XID 79"
    assert cache.see_topology(topology("GPU-b", "GPU-c")) == [], "known already"
    cache.see_topology(topology())
    assert cache.unhealthy_reason(view) == ""


def test_a_list_keeps_nothing_of_pods_that_are_no_workers() -> None:
    assert pod_entry({"metadata": {"name": "p", "namespace": "ml", "uid": "x"}}) is None


def test_jobs_of_one_name_are_told_apart_as_long_as_anything_of_them_is_there() -> None:
    cache, older = Cache(), pod("old", "a")
    older["metadata"]["labels"][contract.LABEL_JOB_UID] = "before"
    cache.see_pod(older)
    cache.see_pod(pod("new", "b"))
    assert sorted(cache.jobs_named(KEY)) == [("ml", "before"), ("ml", "u")]
    cache.see_pod(older, gone=True)
    assert cache.jobs_named(KEY) == [JOB]
    assert cache.jobs_named(("elsewhere", "j")) == []
