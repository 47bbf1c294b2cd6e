"""Compiled code that serves batches of several sizes and lengths, and the sizes that it does not know when it is made."""

import operator

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from kompakt_runtime.compiled.sizes import made_by, order_of, term
from tests.support.runtime.compiled_models import Sequences, off, tokens, trained
from tests.support.runtime.compiling import compiled


def names(session) -> set[str]:
    return {name for name, row in session.figures.layers.items() if row.plain > row.saved}


def share(session) -> float:
    """What is kept of the bytes that plain code hands over."""
    found = session.figures.saved_bytes / session.figures.plain_bytes
    print(f"kept: {session.figures.saved_bytes} bytes, {100 * found:.0f} % of {session.figures.plain_bytes}")
    return float(found)


@pytest.fixture
def same(running):
    """The layers that are packed in code for batches of one size, and the share that they keep."""
    session, model = running(), compiled(Sequences(), decomposed=True)
    trained(model, batch=lambda seed: tokens(4, 32, seed))
    session.stop()
    return names(session), share(session)


def test_sequences_of_other_lengths_are_packed_as_those_of_one_length_are(running, same):
    def batch(seed: int) -> torch.Tensor:
        return tokens(4, 32 + 8 * (seed % 3), seed)

    plain, session, model = trained(Sequences(), batch), running(), compiled(Sequences(), decomposed=True)
    assert 0 < off(trained(model, batch), plain) < 0.1
    assert names(session) == same[0]
    assert share(session) < 1.1 * same[1]
    assert not [reason for reason in session.figures.raw if "Failed" in reason]


def test_batches_of_other_sizes_and_lengths_are_packed_but_for_what_knows_neither(running, same):
    """The last block's activation is read between products alone, which know how many numbers there are in all."""

    def batch(seed: int) -> torch.Tensor:
        return tokens(4 + seed % 3, 32 + 8 * (seed % 2), seed)

    plain, session, model = trained(Sequences(), batch), running(), compiled(Sequences(), decomposed=True, dynamic=True)
    assert 0 < off(trained(model, batch), plain) < 0.1
    assert names(session) == same[0] - {"blocks.1.up [pointwise]"} | {"blocks.1.down"}
    assert share(session) < 1.5 * same[1]
    assert not [reason for reason in session.figures.raw if "Failed" in reason]


def test_dimensions_lie_in_memory_in_one_order_whatever_is_called():
    a, b = symbols(5, 7)
    assert order_of((a, b, 64), (64 * b, 64, 1)) == [0, 1, 2]
    assert order_of((a, 4, b, 16), (64 * b, 16, 64, 1)) == [0, 2, 1, 3]
    assert order_of((a, 4, b, 16), (192 * b, 16, 192, 1)) is None, "between two rows lie others"
    assert order_of((a, b), (7, 1)) is None, "only while b is 7"
    assert order_of((a, b), (1, a)) == [1, 0]
    assert order_of((2, 3), (3, 1)) == [0, 1]


def test_terms_are_sums_and_products():
    a, b = symbols(5, 7)
    assert made_by(term(a * b)) is operator.mul
    assert made_by(term(a + 1)) is operator.add
    assert made_by(term(a // 2)) is None
    assert term(3) == 3


def symbols(*hints: int) -> list[torch.SymInt]:
    """Sizes that are not known, and what they were when a graph was made."""
    from torch._dynamo.source import ConstantSource

    environment = ShapeEnv()
    made = []
    for number, hint in enumerate(hints):
        source = ConstantSource(f"s{number}")
        symbol = environment.create_symbol(hint, source)
        made.append(environment.create_symintnode(symbol, hint=hint, source=source))
    return made
