"""Small faults in our modules, chosen by a seed, and whether the tests find them.

    python -m tools.mutants choose --seed 20 > mutants.jsonl                 # the list
    python -m tools.mutants judge mutants.jsonl verdicts.jsonl [--checkout DIR] [--without runtime]

A mutant is judged by the unit and contract tests that import its module, with 60 s of processor time. It is caught where a
test fails, survives where none does, and is slow where the time ends first, as it does for a test that never ends. The list
names each place by function and source text, so that a list chosen before a change of layout is judged after it too; a place
that is gone is said to be gone.
"""

import argparse
import ast
import copy
import json
import random
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.imports import Importers

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("core", "client", "operator", "extender", "device-plugin", "runtime", "simulator", "sdk", "cli")
SECONDS = 60  # of the processor
LONGEST = 300  # on the clock, for a mutant that makes a test wait for ever
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
WITHOUT_CODE = (ast.JoinedStr, ast.Import, ast.ImportFrom)  # the places of what is inside an f-string are wrong before 3.12


@dataclass(frozen=True, slots=True)
class Mutant:
    """`before` becomes `after` at its `nth` place (from 0) within the function, `<module>` outside of all."""

    path: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    nth: int = 0


def variants(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The (kind, text) of every fault that this node alone allows."""
    match node:
        case ast.Compare(ops=[op, *_]) if type(op) in FLIPPED:
            changed = copy.deepcopy(node)
            changed.ops[0] = FLIPPED[type(op)]()
            yield "comparison", ast.unparse(changed)
        case ast.Constant(value=bool() as flag):
            yield "constant", str(not flag)
        case ast.Constant(value=int() | float() as number):
            yield "constant", str(number + 1)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield "not", f"({ast.unparse(inner)})"
        case ast.BoolOp(op=op, values=values):
            yield "and/or", ast.unparse(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return", "return None"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Continue():
            yield "dropped", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "dropped", "pass"


def places(tree: ast.AST, function: str = "<module>") -> Iterator[tuple[str, ast.AST]]:
    """Every node that runs, with the function around it; no types, no imports, nothing inside an f-string."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "type_params"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, WITHOUT_CODE):
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = node.name if function == "<module>" else f"{function}.{node.name}"
                yield from places(node, inside)
            else:
                yield function, node
                yield from places(node, function)


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All mutants of one file, in the order of its text."""
    found: list[Mutant] = []
    seen: dict[tuple[str, str, str], int] = {}
    for function, node in places(ast.parse(source)):
        for kind, after in variants(node):
            before = ast.get_source_segment(source, node) or ""
            key = (function, before, after)
            found.append(Mutant(path, function, getattr(node, "lineno", 0), kind, before, after, seen.get(key, 0)))
            seen[key] = seen.get(key, 0) + 1
    return found


def modules(checkout: Path) -> list[Path]:
    """Our modules, without what is generated."""
    found = [path for room in ROOMS for path in (checkout / room).glob("kompakt*/**/*.py") if "proto" not in path.parts]
    return sorted(found)


def choose(checkout: Path, seed: int, count: int) -> list[Mutant]:
    """So many of all mutants, each as likely as any other."""
    every = [one for path in modules(checkout) for one in mutants_of(str(path.relative_to(checkout)), path.read_text())]
    return random.Random(seed).sample(every, count)


def mutated(source: str, path: str, wanted: Mutant) -> str | None:
    """The file's text with the fault in it; None where it has no such place. A method may have moved to another class."""
    last = wanted.function.rsplit(".", 1)[-1]
    counts: dict[str, int] = {}
    for function, node in places(ast.parse(source)):
        if function.rsplit(".", 1)[-1] != last or (wanted.kind, wanted.after) not in variants(node):
            continue
        if ast.get_source_segment(source, node) == wanted.before:
            counts[function] = counts.get(function, -1) + 1
            if counts[function] == wanted.nth:
                return _replaced(source, node, wanted.after)
    return None


def _replaced(source: str, node: ast.AST, after: str) -> str:
    lines = source.encode().splitlines(keepends=True)
    assert isinstance(node, ast.expr | ast.stmt)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    head = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    tail = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    text = after if isinstance(node, ast.stmt) else f"({after})"
    return (head + text.encode() + tail).decode()


def located(checkout: Path, wanted: Mutant) -> tuple[Path, str] | None:
    """The file that has the place now, its own first, and its text with the fault in it."""
    own = checkout / wanted.path
    for path in [*([own] if own.exists() else []), *modules(checkout)]:
        text = mutated(path.read_text(), wanted.path, wanted)
        if text is not None:
            return path, text
    return None


def judge(checkout: Path, tests: Importers, wanted: Mutant) -> tuple[str, str]:
    """(caught, survived, slow or gone, the test that failed); a module that no test imports is judged by its room's tests."""
    found = located(checkout, wanted)
    if found is None:
        return "gone", ""
    path, text = found
    room = wanted.path.split("/")[0].replace("-", "_")
    files = tests.of(path) or [f"tests/unit/{room}"]
    before = path.read_text()
    try:
        path.write_text(text)
        return run_tests(checkout, files)
    finally:
        path.write_text(before)


def run_tests(checkout: Path, files: list[str]) -> tuple[str, str]:
    """A run that the processor's limit ends has a negative code; 5 is pytest's for no tests at all."""
    command = [str(checkout / ".venv/bin/python"), "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files]
    try:
        done = subprocess.run(
            command, cwd=checkout, capture_output=True, text=True, timeout=LONGEST, check=False, preexec_fn=_limit
        )
    except subprocess.TimeoutExpired:
        return "slow", ""
    if done.returncode <= 0 or done.returncode == 5:
        return "slow" if done.returncode < 0 else "survived", ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return "caught", failed[1] if failed else ""


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))


def judge_all(checkout: Path, chosen: Path, verdicts: Path, without: list[str]) -> None:
    """One after the other; a list begun before goes on where it stopped."""
    done = verdicts.read_text().splitlines() if verdicts.exists() else []
    known = {Mutant(**json.loads(line)["mutant"]) for line in done}
    tests = Importers(checkout)
    for line in chosen.read_text().splitlines():
        wanted = Mutant(**json.loads(line))
        if wanted.path.split("/")[0] in without or wanted in known:
            continue
        verdict, by = judge(checkout, tests, wanted)
        print(f"{verdict:9} {wanted.path}:{wanted.line} {wanted.kind}: {wanted.before[:50]!r}", file=sys.stderr, flush=True)
        with verdicts.open("a") as file:
            file.write(json.dumps({"verdict": verdict, "by": by, "mutant": asdict(wanted)}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, default=ROOT, help="the tree that is changed and tested (this one)")
    todo = parser.add_subparsers(dest="todo", required=True)
    chooser = todo.add_parser("choose", help="print mutants, one a line")
    chooser.add_argument("--seed", type=int, required=True)
    chooser.add_argument("--count", type=int, default=200)
    judged = todo.add_parser("judge", help="judge the mutants of a list")
    judged.add_argument("mutants", type=Path)
    judged.add_argument("verdicts", type=Path)
    judged.add_argument("--without", action="append", default=[], choices=ROOMS, help="leave this room out")
    arguments = parser.parse_args()
    checkout = arguments.checkout.resolve()
    if arguments.todo == "choose":
        for one in choose(checkout, arguments.seed, arguments.count):
            print(json.dumps(asdict(one)))
    else:
        judge_all(checkout, arguments.mutants, arguments.verdicts, arguments.without)


if __name__ == "__main__":
    main()
