"""Results that an operation's reader got in another type, as autocast casts them: computed and cast again."""

import pytest
import torch
import torch.nn.functional as F

from tests.support.runtime.derived_training import ROWS, WIDE, derived, trained
from tests.support.runtime.small_training import failed

HALF = torch.bfloat16


def narrow(own, *names):
    return (own[name].to(HALF) for name in names)


def norm(own, x):
    (b,) = narrow(own, "b")
    return F.layer_norm(x @ own["a"], (WIDE,), own["scale"], own["shift"]).to(HALF) @ b


def product(own, x):
    (c,) = narrow(own, "c")
    return ((x @ own["a"]) * (x @ own["b"])).to(HALF) @ c


def root_mean_square(own, x):
    """As RMSNorm is written out in models that compute in a narrow type."""
    (b,) = narrow(own, "b")
    wide = x @ own["a"]
    y = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(HALF)
    return (own["scale"].to(HALF) * y) @ b


def thrice(own, x):
    """Autocast casts for each of its readers anew."""
    y = F.layer_norm(x @ own["a"], (WIDE,), own["scale"], own["shift"])
    first, second, third = (y.to(HALF) @ weight for weight in narrow(own, "a", "b", "c"))
    return first + second + third


@pytest.mark.parametrize(("function", "results"), [(norm, 1), (product, 1), (root_mean_square, 2), (thrice, 3)])
def test_a_narrow_copy_is_made_again_from_what_its_result_was_computed_from(running, function, results):
    session = running(activation_gradients="Bounded", verify=True)
    ours, plain = trained(function, session)
    passes = 5
    assert sum(plain for plain, _ in derived(session).values()) >= (passes - 1) * results * 2 * ROWS * WIDE
    assert session.figures.violations == 0 < session.figures.checked
    for name, gradient in plain.items():
        assert float((ours[name] - gradient).norm()) < 0.1 * float(gradient.norm()), name
    assert not failed(session)


def test_from_exact_sources_the_narrow_copy_has_the_same_bits(running):
    session = running(mode="Lossless")
    ours, plain = trained(product, session)
    assert derived(session)
    assert all(torch.equal(ours[name], plain[name]) for name in plain)


def test_a_wider_copy_is_kept(running):
    """What is computed again in the narrow type may be off by a rounding of that, which a wide type's reader never allowed."""

    def widened(own, x):
        a, b = narrow(own, "a", "b")
        return (F.silu(x.to(HALF) @ a) * (x.to(HALF) @ b)).float() @ own["c"]

    session = running(activation_gradients="Bounded", verify=True)
    trained(widened, session)
    assert not any("c [derived]" in name for name in derived(session))
    assert not session.figures.raw["DerivedDiffers"], "nobody tries"
    assert session.figures.violations == 0


def test_a_second_result_behind_a_cast_is_none_of_the_operations_first(running):
    """Of two results in one node only the first is what its operator gives."""

    def statistics(own, x):
        y, mean, _ = torch.native_layer_norm(x @ own["a"], (WIDE,), own["scale"], own["shift"], 1e-5)
        return (mean.expand(-1, WIDE).to(HALF) @ own["b"].to(HALF)) + y.to(HALF) @ own["c"].to(HALF)

    session = running(activation_gradients="Exact")
    trained(statistics, session)
    assert not session.figures.raw["DerivedDiffers"], "nobody tries"
