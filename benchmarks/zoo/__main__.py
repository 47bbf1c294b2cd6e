"""Models that nobody here wrote, unmodified, under compression; `python -m benchmarks.zoo`.

Models of timm, torchvision and transformers, built from configurations with random weights, train on digits and on bytes of
this repository's source code. For each is printed a row of one Markdown table: what is kept for the backward pass with and
without compression, with and without the warm-up steps; what the runtime held; the step's time; what the gradient differs by,
and by how much batches differ anyway. The lines above the table say what stands in which column.

Rows are added to the file --record, as JSON; those that it has of the same runtime are not measured again.
"""

import argparse
import platform
import sys
import traceback

import torch

from benchmarks.accuracy_tasks import DTYPES
from benchmarks.zoo.compressed import SETTINGS
from benchmarks.zoo.measure import measured
from benchmarks.zoo.models import ZOO
from benchmarks.zoo.rows import Row, Rows
from benchmarks.zoo.table import LEGEND, layers, readers, summary, table


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", choices=ZOO, nargs="+", default=list(ZOO))
    parser.add_argument("--dtypes", choices=DTYPES, nargs="+", default=list(DTYPES))
    parser.add_argument("--setting", choices=SETTINGS, default="default")
    parser.add_argument("--target", type=float, default=0.01)
    parser.add_argument("--record", help="file of JSON lines, one a row")
    parser.add_argument("--readers", action="store_true", help="say below the table which operations read what is kept")
    parser.add_argument("--layers", action="store_true", help="say below the table what each weight's gradient differs by")
    return parser.parse_args()


def tried(rows: Rows, name: str, dtype: str, setting: str, target: float) -> Row | None:
    """None where it fails: one model that cannot be measured must not cost the night's other rows."""
    try:
        row = rows.row(name, dtype, setting, target)
    except Exception:
        print(f"{name}, {dtype}: failed\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        return None
    print(f"{name}, {dtype}: {row.ratio:.2f}", file=sys.stderr, flush=True)
    return row


def main() -> None:
    given = arguments()
    torch.set_num_threads(1)
    rows = Rows(given.record, measured)
    asked = [(name, dtype) for dtype in given.dtypes for name in given.models]
    found = [row for name, dtype in asked if (row := tried(rows, name, dtype, given.setting, given.target))]
    about = f"{platform.machine()}, one thread, torch {torch.__version__}, setting {given.setting}, target {given.target}"
    print(about, "", LEGEND, "", *table(found), "", *summary(found), sep="\n")
    for row in found:
        print(*(readers(row) if given.readers else ()), *(layers(row) if given.layers else ()), sep="\n", end="")
    sys.exit(len(found) < len(asked))


if __name__ == "__main__":
    main()
