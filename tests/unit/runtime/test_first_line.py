"""The line that people repeat: how much was held instead of what, and how far gradients were off, as measured."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import export
from kompakt_runtime.figures.counted import Figures, Layer
from kompakt_runtime.report.gradient_errors import GradientErrors
from kompakt_runtime.report.text import Report

CONFIG = RuntimeConfig("ErrorBounded")


class Entry:
    """A saved tensor as the account of held bytes sees it."""

    def __init__(self, layer, held, nbytes):
        self.layer, self.held_bytes, self.nbytes, self.share = layer, held, nbytes, None


def trained(held: int = 41_000_000, plain: int = 180_000_000, layer: str = "encoder.3") -> Figures:
    figures = Figures(plain_bytes=9, saved_bytes=3, forwards=2, steps=2, compressed=1)
    entry = Entry(layer, held, plain)
    figures.holding.weigh(entry)
    del entry
    figures.holding.stepped()
    figures.holding.weigh(entry := Entry("head", held // 2, plain // 2))
    del entry
    figures.holding.stepped()
    return figures


def test_held_bytes_lead_and_the_largest_measured_sigma_follows():
    figures = trained()
    figures.layers |= {
        "a": Layer(1, 1, bound=0.1, sigma=0.8),
        "b": Layer(1, 1, bound=0.1, sigma=0.2),
        "b [gelu]": Layer(1, 1, bound=1, sigma=3),
    }
    report = Report.of(CONFIG, figures)
    first, second = str(report).splitlines()[:2]
    assert (
        first
        == report.headline()
        == (
            "activations held at most 41.0 MB instead of 180.0 MB (4.4 times less), "
            "weight gradients off by 0.80% of a step at most once measured "
            "(2 of 2 layers, by their own inputs, standard deviation)"
        )
    )
    assert "3.00 times smaller" in second
    assert report.notes()[0] == (
        "most was held in step 1, set by encoder.3, saved (180.0 MB); the last step held at most 20.5 MB instead of 90.0 MB"
    )


def test_what_was_measured_of_a_layer_whose_input_is_computed_again_is_told():
    figures = trained()
    figures.layers |= {"a": Layer(bound=0.1, sigma=0.5), "a [derived]": Layer(8, 1), "never": Layer()}
    report = Report.of(CONFIG, figures)
    assert "weight gradients off by 0.50% of a step" in report.headline()
    assert [layer.cells()[:4] for layer in report.layers] == [("a", "0.00", "0.00", "computed again")]


def test_a_comparison_takes_the_place_of_what_steps_measure():
    figures, errors = trained(), GradientErrors(2)
    figures.layers["a"] = Layer(1, 1, bound=0.1, sigma=0.8)
    for error in (1e-4, 4e-4):
        errors.losses_agree([1.0], [1.0])
        errors.add({"a": (1.0, error)})
    figures.compared = errors.said
    report = Report.of(CONFIG, figures)
    assert report.headline().endswith("gradient off by 2.00% at most (||g' - g|| / ||g||, 2 steps against plain training)")
    assert str(report).splitlines()[-4:] == [
        "gradients against plain training's, ||g' - g|| / ||g||, 2 steps: 1.50% in the median, 2.00% at worst",
        "losses equal to the last bit in all 2 steps",
        "layer  median  worst step",
        "a       1.50%       2.00%",
    ]
    assert report.comparison is not None
    assert report.comparison.table().row_count == 1


def test_a_kind_in_brackets_is_shown_below_the_table_too():
    shown = io.StringIO()
    Console(width=300, file=shown).print(Report.of(CONFIG, trained(layer="mlp.act [pow]")).table())
    assert "set by mlp.act [pow], saved" in shown.getvalue()


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (Layer(1, 1, bound=0.1), "the gradient's error not measured yet"),
        (Layer(1, 1), "nothing of it lossy, so gradients are those of plain training"),
    ],
)
def test_what_is_not_measured_is_not_said(layer, words):
    figures = trained()
    figures.layers["a"] = layer
    assert Report.of(CONFIG, figures).headline().endswith(words)


def test_a_run_that_held_nothing_or_saves_nothing_says_so():
    assert Report.of(CONFIG, Figures()).headline().startswith("no activations were held, ")
    assert "41.0 MB instead of 41.0 MB (not less)" in Report.of(CONFIG, trained(plain=41_000_000)).headline()


def test_of_several_ranks_the_one_that_held_most_counts_in_report_and_summary():
    rows = [export.report(trained(held=held, layer=layer)) for held, layer in ((5_000_000, "a"), (7_000_000, "b"))]
    rows[0]["peak"]["reservedBytes"], rows[1]["peak"]["reservedBytes"] = 9, 2_000_000_000
    rows[1]["peak"]["allocatedBytes"] = 1_850_000_000
    report = Report.of_rows(CONFIG, [*rows, export.report(Figures())])
    assert report.peak is not None
    assert (report.peak.held, report.peak.tensor, report.peak.tensor_bytes) == (7_000_000, "b, saved", 180_000_000)
    said = "torch reserved at most 2000.0 MB of the GPU; tensors had 1850.0 MB of it"
    assert said in report.notes()
    rows[1]["peak"]["allocatedBytes"] = 1_500_000_000
    (note,) = [note for note in Report.of_rows(CONFIG, rows).notes() if note.startswith("torch reserved")]
    assert note.endswith("1500.0 MB of it. PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may make the rest smaller")
    summary = export.merged(CONFIG, rows)
    assert (summary["peak"]["bytes"], summary["peak"]["plainBytes"]) == (7_000_000, 180_000_000)


def test_bytes_that_passed_through_are_told_by_reason_and_long_words_leave_the_summary_short():
    figures = trained(layer="block." * 60)
    figures.count_passed("Compiled", 3_000)
    figures.count_kept("Small", 500)
    words = export.merged(CONFIG, [export.report(figures)])
    assert words["rawBytes"] == {"Compiled": 3_000, "Small": 500}
    figures = replace(figures, encoder="x" * 200, overhead=lambda: {"percent": "1.0", "codecPercent": "1.0"})
    for number in range(40):
        figures.count_kept(f"PackFailed{'LongName' * 12}{number}", 10**15)
    for reason in figures.raw:
        figures.away.count(reason)
    assert len(json.dumps(export.merged(CONFIG, [export.report(figures)]))) <= export.MOST_BYTES
