"""The demo's steps, asserted: scattered GPUs, a gang over two real nodes, compressed training, the figures it ends with."""

import pytest

from kompakt_core.topology.wire import graph_from_spec
from tests.support.turns import in_turn
from tools.kube import demo, scatter, stack
from tools.kube.comparison import compare
from tools.kube.steps import StepPrinter


@pytest.fixture(scope="module")
def stage(kompakt):
    graphs = {node: graph_from_spec(kompakt.kubectl.get("gputopology", node)["spec"]) for node in kompakt.machines}
    yield scatter.scatter(kompakt.kubectl, graphs, kompakt.images.names["pause"])
    kompakt.kubectl("delete", "pods", f"--selector={scatter.LABEL}", "--now")


@pytest.fixture(scope="module")
def compressed(kompakt, stage):
    """The example's run with compression, and its workers as they were while it ran."""
    return demo.train(stage, "job.yaml", StepPrinter(), kompakt.images.names["kompakt-digits"])


@pytest.fixture(scope="module")
def plain(kompakt, stage, compressed):
    """The run without, after the other, since both want the same GPUs."""
    return demo.train(stage, "job-plain.yaml", StepPrinter(), kompakt.images.names["kompakt-digits"])[0]


@pytest.fixture(scope="module")
def places(stage, compressed):
    return demo.comparisons(stage, compressed[1])


def test_each_real_node_reports_the_machine_it_plays(kompakt):
    for node, machine in zip(kompakt.machines, stack.MACHINES, strict=True):
        topology = kompakt.kubectl.get("gputopology", node)
        graph = graph_from_spec(topology["spec"])
        assert len(graph.gpus) == 8
        assert topology["spec"]["nodeUID"] == kompakt.kubectl.get("node", node)["metadata"]["uid"]
        lanes = sum(link.lanes for link in graph.links)
        # A DGX-1 V100 has 6 NVLinks on each of 8 GPUs; four bridges join the PCIe cards in pairs, with 12 links each.
        assert lanes == {"dgx1-v100": 24, "a100-pcie-8-bridge-pairs": 48}[machine]


def test_the_gang_needs_both_machines_and_gets_them(kompakt, compressed):
    assert {worker.node for worker in compressed[1]} == set(kompakt.machines)


def test_gpus_written_seen_inside_and_held_by_kubelet_are_the_same(compressed):
    workers = compressed[1]
    assert len(workers) == 2
    for worker in workers:
        assert len(worker.written) == scatter.WANTED
        assert worker.seen == worker.written
        assert worker.held == set(worker.written)


def test_first_fit_would_have_chosen_a_worse_set_on_both_machines(places):
    assert len(places) == 2
    for place in places:
        assert place.chosen == place.best
        assert place.first < place.chosen
        assert place.worst <= place.mean < place.chosen


def test_status_tells_nodes_gpus_and_value_against_ideal(stage, compressed, places):
    run, workers = compressed
    status = run.job["status"]
    assert status["phase"] == "Succeeded"
    told = {
        pod["name"]: (
            pod["node"],
            tuple(stage.graphs[pod["node"]].gpus[int(index)].uuid for index in pod["gpuIndices"].split(",")),
        )
        for role in status["roles"]
        for pod in role["pods"]
    }
    assert told == {worker.pod: (worker.node, worker.written) for worker in workers}
    plan = status["scheduling"]["plan"]
    assert plan["value"] == min(place.chosen for place in places)
    assert plan["ideal"] == max(place.ideal for place in places)


def test_compression_is_active_and_its_figures_are_in_the_status(compressed):
    figures = compressed[0].job["status"]["compression"]
    assert figures["active"] is True
    assert figures["savedBytes"] < figures["plainBytes"]
    assert float(figures["ratio"]) == pytest.approx(figures["plainBytes"] / figures["savedBytes"], abs=0.01)
    assert float(figures["ratio"]) > 2
    assert figures["denominator"]
    assert figures["ranks"] == 4
    assert figures["violations"] == 0
    assert float(figures["overheadPercent"]) > 0
    assert "in turn" in figures["overheadDenominator"]


@in_turn(1)
def test_accuracy_is_that_of_plain_training(compressed, plain):
    assert plain.accuracy > 95
    assert compressed[0].accuracy == pytest.approx(plain.accuracy, abs=1.5)


def test_the_plain_run_compresses_nothing(plain):
    assert not plain.job["status"].get("compression", {}).get("active", False)


def test_compare_refuses_a_set_that_was_not_free(stage):
    node = next(iter(stage.graphs))
    taken = next(index for index in range(8) if index not in stage.free[node])
    with pytest.raises(ValueError, match="not among the free"):
        compare(node, stage.graphs[node], [taken], stage.free[node])
