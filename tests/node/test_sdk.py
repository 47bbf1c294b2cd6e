"""A TrainingJob from Python on real nodes: what containers print comes with its rank, through an attempt that fails."""

import pytest

from kompakt import JobNotFound, TrainingJob
from tests.support.node.jobs import job

TALKS = "echo begins; sleep 2; echo ${POD##*-}; test ${POD##*-} = a2"
POD = {"env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}


def test_a_job_is_followed_read_and_deleted(kompakt, jobs):
    image = kompakt.images.names["pause"]
    manifest = job("from-python", image, TALKS, container=POD, runPolicy={"backoffLimit": 1})
    jobs.names.append("from-python")
    made = TrainingJob.from_manifest(manifest, kubeconfig=str(kompakt.cluster.kubeconfig)).submit()
    followed = [(line.rank, line.text) for line in made.logs(follow=True)]
    assert sorted(followed[:4]) == [(0, "a1"), (0, "begins"), (1, "a1"), (1, "begins")]
    assert sorted(followed[4:]) == [(0, "a2"), (0, "begins"), (1, "a2"), (1, "begins")]
    assert made.wait(60)["attempt"] == 2
    assert [line.text for line in made.logs()] == ["begins", "begins", "a2", "a2"]
    assert [str(line) for line in made.logs(ranks={1}, tail=1)] == ["[worker-1] a2"]
    made.delete(wait=True)
    with pytest.raises(JobNotFound):
        made.status()
