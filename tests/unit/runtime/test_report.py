"""What the report of a run shows of many rows, what it leaves out and says so, and why a figure is missing."""

import time

import pytest
import torch
from torch import nn

from kompakt_runtime.bounds.layer import observed
from kompakt_runtime.config import RuntimeConfig, SiteOverride
from kompakt_runtime.cost import headroom, overhead
from kompakt_runtime.cost.overhead import Overhead
from kompakt_runtime.figures import export
from kompakt_runtime.figures.counted import Figures, Layer
from kompakt_runtime.report import notes
from kompakt_runtime.report.rows import HEADER, LayerReport, aligned
from kompakt_runtime.report.text import Report
from tests.support.runtime.small_training import network, warm_up

CONFIG = RuntimeConfig("ErrorBounded")
MB = 1_000_000


def trained(**layers: Layer) -> Figures:
    figures = Figures(plain_bytes=9, saved_bytes=3, forwards=2, steps=20, compressed=1)
    figures.layers |= layers
    return figures


def report_of(figures: Figures, config: RuntimeConfig = CONFIG) -> Report:
    return Report.of(config, figures)


def test_the_first_line_says_what_the_first_step_was_estimated_to_do_where_that_is_more():
    seen = Layer(MB, MB, bound=0.1, sigma=1.03, first=0.5)
    unmeasured = Layer(MB, MB, bound=0.1, first=69.0)
    report = report_of(trained(**{"layer1.conv": seen, "layer4.0.conv2": unmeasured, "bn [norm]": Layer(MB, MB, first=80)}))
    assert report.headline().endswith(
        "weight gradients off by 1.03% of a step at most once measured (1 of 2 layers, by their own inputs, standard deviation)"
        "; in the first step, as estimated, by 69% (layer4.0.conv2)"
    )
    calm = report_of(trained(conv=seen))
    assert "estimated" not in calm.headline()
    never = report_of(trained(conv=unmeasured))
    assert never.headline().endswith("not measured yet; in the first step, as estimated, by 69% (conv)")


@pytest.mark.parametrize(("first", "far"), [(1.9, False), (69.0, True)])
def test_an_estimate_far_above_the_target_has_a_sentence_of_its_own(first, far):
    lines = report_of(trained(conv=Layer(MB, MB, bound=0.1, first=first))).notes()
    found = [line for line in lines if "far above its target" in line]
    assert bool(found) is far
    if far:
        assert "its weight gradient was off by 69% of a step; later steps have measured bounds" in found[0]


def test_rows_with_most_kept_bytes_come_first_and_the_others_are_counted():
    rows = {f"layer{number}": Layer(40 * MB, number * MB) for number in range(1, 21)}
    rows |= {"tiny1": Layer(4_999, 10), "tiny2": Layer(4_000, 4_000), "never": Layer()}
    report = report_of(trained(**rows))
    lines = report.lines(everything=False)
    shown = [line.split()[0] for line in lines if line.startswith("layer") and "MB" not in line]
    assert shown == [f"layer{number}" for number in range(20, 5, -1)]
    assert "5 more rows, which keep 15.00 MB together; all of them: --all" in lines
    assert "2 rows below 0.005 MB left out" in lines
    whole = report.lines()
    assert sum(line.startswith(("layer", "tiny")) for line in whole) == 1 + 22
    assert not any("--all" in line or "left out" in line for line in whole)


def test_a_row_of_a_file_is_one_line_and_in_columns_however_long_its_name():
    name = "encoder." * 40 + "linear [norm]"
    layers = (LayerReport(name, 2 * MB, MB, 3, 0.1, 0.05, None, None), LayerReport("a", 20 * MB, MB, 0, None, None, None, None))
    header, *lines = aligned(("layer", *HEADER), [layer.cells() for layer in layers])
    assert [line.split()[0] for line in lines] == [name.split()[0], "a"]
    assert len({len(line) for line in (header, *lines)}) == 1
    assert lines[0].split()[-7:] == ["2.00", "1.00", "2.00", "0.1", "0.05", "-", "3"]


def test_what_is_computed_again_is_called_that_and_stands_in_its_layer_s_row():
    figures = trained(**{"a": Layer(bound=0.1, sigma=0.5), "a [derived]": Layer(11 * MB, 1), "b": Layer(8 * MB, 2 * MB)})
    figures.layers["b [derived]"] = Layer(2 * MB, 0)
    a, b = report_of(figures).layers
    assert a.cells()[:5] == ("a", "11.00", "0.00", "computed again", "0.1")
    assert b.cells()[:4] == ("b", "10.00", "2.00", "5.00")
    assert b.again == 2 * MB


def test_modules_are_named_that_kept_most_for_each_reason():
    figures = trained()
    for number in range(7):
        figures.count_kept("Small", 1000 * (number + 1), f"bn{number}")
    figures.count_kept("HeldElsewhere", 7_860_000, "conv1", held=True)
    figures.count_passed("Compiled", 5000, "block")
    figures.count_raw("Compiled")
    found = report_of(figures).lines(everything=False)
    assert "kept as it is: Small 7 (0.03 MB), HeldElsewhere 1 (7.86 MB that the program holds itself, in no sum), " in "\n".join(
        found
    )
    small = next(line for line in found if line.startswith("  Small in "))
    assert small.startswith("  Small in bn6 1 (0.01 MB), bn5 1 (0.01 MB), bn4")
    assert small.endswith(", 2 more modules (0.00 MB)")
    assert "  HeldElsewhere in conv1 1 (7.86 MB)" in found
    assert "  Compiled in block 1 (0.01 MB)" in found
    assert "bn0 1" in "\n".join(report_of(figures).lines())


def test_a_training_names_the_modules_whose_tensors_it_kept(running):
    session = running(min_tensor_bytes=1 << 20, overrides=(SiteOverride("0", "None"), SiteOverride("typo.*", "None")))
    warm_up(network(), steps=1)
    rows = session.figures.kept.rows()
    assert {name for name, _, _ in rows["ModeNone"]} == {"0"}
    assert {name for name, _, _ in rows["Small"]} == {"1", "3"}  # each ReLU's output is the next layer's input, and counts once
    assert all(tensors and nbytes for _, tensors, nbytes in rows["Small"])
    report = Report.of(session.config, session.figures)
    assert [line for line in report.notes() if "override" in line] == ["override 'typo.*' matched no module"]


@pytest.mark.parametrize("pattern", ["module.0", "0", "class:Conv2d", "*.0"])
def test_overrides_go_by_the_names_that_the_report_shows(running, pattern):
    """A wrapper's own name, as DistributedDataParallel puts one before the model's, is in neither."""

    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.module(x)

    session = running(overrides=(SiteOverride(pattern, "None"),))
    warm_up(Wrapper(), steps=1)
    unmatched = notes.unmatched(session.config.overrides, session.figures.overrides_matched)
    assert unmatched == ([] if pattern in ("0", "class:Conv2d") else [f"override '{pattern}' matched no module"])


@pytest.mark.parametrize("room", [1 << 40, -1])
def test_the_steps_that_it_takes_to_measure_time_are_those_after_which_there_is_a_figure(monkeypatch, room):
    monkeypatch.setattr(overhead, "room", lambda device: room)
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    figures, optimizer = Figures(), object()
    counter = Overhead(figures, plain=True, timed=True, measured=observed)
    counter.entered(network())
    said = []
    while not counter.said():
        said.append(counter.steps())
        now[0] += 1
        with counter.codec():
            now[0] += 0.1
        counter.stepped(optimizer, observed(len(said)))
    assert counter.steps() == (len(said), len(said)) == ((24, 24) if room > 0 else (49, 49))
    assert said[overhead.FIRST :] == [(len(said), had) for had in range(overhead.FIRST, len(said))]
    figures = trained()
    figures.overhead_steps = lambda: said[-1]
    wanted = f"time of a step: not measured; that takes {len(said)} optimizer steps, this run had {len(said) - 1}"
    assert wanted in report_of(figures).notes()


def test_without_a_figure_after_enough_steps_and_where_none_is_wanted():
    assert notes.time_of_a_step({}, [(24, 60)]) == [
        "time of a step: not measured; too few of the first 60 optimizer steps ran undisturbed"
    ]
    assert notes.time_of_a_step({}, [(0, 0)]) == notes.time_of_a_step({}, []) == []
    assert Overhead(Figures()).steps() == (0, 0)


def test_a_suggested_batch_names_the_memory_that_it_rests_on():
    figures = trained()
    figures.batch, figures.suggested_batch, figures.batch_memory = 16, 8790, (25_300_000_000, "all memory of this machine")
    assert (
        "at least a batch of 8790 would fit where 16 ran, for each rank and forward pass, by 25.3 GB: all memory of this machine"
        in report_of(figures).notes()
    )


def test_a_training_says_whose_memory_it_reads(running, monkeypatch):
    session = running(batch="Suggest")
    warm_up(network(), steps=3)
    nbytes, whose = session.figures.batch_memory
    assert nbytes == headroom.container_limit(headroom.LIMITS)
    assert whose in ("all memory of this machine, free or not", "the container's limit")
    assert headroom.limit_words(torch.device("cpu"), {"LOCAL_WORLD_SIZE": "4"}) == f"1/4 of {whose}"


@pytest.mark.parametrize(
    ("steps", "why"), [(2, "that takes 3 optimizer steps, this run had 2"), (3, "no module was given a tensor")]
)
def test_why_no_batch_is_suggested(steps, why):
    figures = trained()
    figures.steps = steps
    asked = RuntimeConfig("ErrorBounded", batch="Suggest")
    assert [line for line in report_of(figures, asked).notes() if f"no batch is suggested: {why}" in line]
    assert not [line for line in report_of(figures).notes() if "batch" in line]
    assert notes.BATCH_STEPS == headroom.STEPS


def test_a_lossless_run_names_no_target():
    assert report_of(trained(), RuntimeConfig("Lossless")).totals().startswith("Lossless, 20 optimizer steps")


def test_files_of_an_older_runtime_can_still_be_shown():
    row = export.report(trained(a=Layer(MB, MB)))
    for name in ("keptModules", "overridesMatched", "overheadSteps", "batchMemory"):
        del row[name]
    assert "a" in Report.of_rows(CONFIG, [row]).lines()[4]
