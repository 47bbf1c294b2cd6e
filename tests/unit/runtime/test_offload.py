"""Saved tensors in host memory during whole trainings: values are those of plain training, and nothing is left behind."""

import functools
import gc
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import kompakt_runtime
from kompakt_runtime.config import SiteOverride
from kompakt_runtime.offload.schedule import Offloading
from kompakt_runtime.saved.carrier import Carrier, Hosted
from tests.support.runtime.thread_lane import ThreadLane

ROWS, WIDTH, CHUNK = 64, 64, 4096


def network() -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [part for _ in range(4) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 4))


class Recomputed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.inner, self.last, self.reentrant = network()[:6], network()[6:12], nn.Linear(WIDTH, 4), reentrant

    def forward(self, x):
        return self.last(checkpoint(self.inner, self.first(x), use_reentrant=self.reentrant))


def batch(seed: int) -> torch.Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed))


def loss_of(model: nn.Module, seed: int) -> torch.Tensor:
    return model(batch(seed)).square().sum()


def once(model, seed):
    loss_of(model, seed).backward()


def three_passes_of_which_two_are_summed(model, seed):
    loss_of(model, seed).backward()
    (loss_of(model, seed + 50) + loss_of(model, seed + 90)).backward()


def twice_over_one_graph(model, seed):
    loss = loss_of(model, seed)
    loss.backward(retain_graph=True)
    loss.backward()


def gradients_of_gradients(model, seed):
    x = batch(seed).requires_grad_()
    (slope,) = torch.autograd.grad(model(x).square().mean(), x, create_graph=True)
    slope.square().mean().backward()


def half_the_rows_from_step_6_on(model, seed):
    model(batch(seed)[: ROWS if seed < 6 else ROWS // 2].clone()).square().sum().backward()


def train(model: nn.Module, steps: int = 8, backward=once, lane: ThreadLane | None = None) -> list[torch.Tensor]:
    """Gradients of all steps and the weights at the end; a step begins when the copies of the last are over, on any machine."""
    optimizer, found = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), []
    for step in range(steps):
        optimizer.zero_grad()
        backward(model, step)
        found += [weight.grad.clone() for weight in model.parameters()]
        optimizer.step()
        if lane:
            lane.settle()
    return found + [weight.detach().clone() for weight in model.parameters()]


def same(a, b) -> bool:
    return len(a) == len(b) and all(map(torch.equal, a, b))


@pytest.fixture
def offloaded(running):
    """Starts sessions whose tensors go over a lane of threads, and looks that nothing of them stays."""
    started = []

    def start(lane=None, budget=1 << 24, **settings):
        lane = lane or ThreadLane()
        carriers = functools.partial(Carrier, budget=budget, chunk=CHUNK)
        offloading = functools.partial(Offloading, lanes=lambda device: lane, least=1024, probe=3 * CHUNK, carriers=carriers)
        session = running(offloading, **{"mode": "Lossless", "offload": "Auto", **settings})
        session.lane = lane
        started.append(session)
        return session

    yield start
    for session in started:
        session.stop()
        nothing_left(session)


def nothing_left(session) -> None:
    session.hooks.ledger.forget_recent()
    gc.collect()
    assert not session.hooks.ledger._entries
    session.lane.settle()
    assert session.lane.lost == 0, "a copy's memory was gone before its turn"
    carrier = session.hooks.offloading._carrier
    if carrier is not None:
        carrier.release(0)
        assert carrier.held == 0
        assert len(carrier.home) * CHUNK == carrier.taken <= carrier.budget, "a chunk is lost or came home twice"
        assert len({chunk.data_ptr() for chunk in carrier.home}) == len(carrier.home)


@pytest.fixture
def warm(offloaded):
    """A model and a session whose tensors go from here on: a step was timed."""

    def start(model: nn.Module | None = None, lane: ThreadLane | None = None):
        model, session = model or network(), offloaded(lane)
        train(model, 5, once, session.lane)
        assert chosen(session), away(session).reasons
        return model, session

    return start


def away(session):
    return session.figures.away


def chosen(session):
    return session.hooks.offloading._plan.chosen


def some_go(session) -> bool:
    return away(session).tensors > 0


def whole_ones_go(session) -> bool:
    found = away(session)
    wrong = found.late or [reason for reason in found.reasons if "Failed" in reason]
    return found.tensors > 0 and found.bytes == found.tensors * ROWS * WIDTH * 4 and not wrong


def go(some: bool, why: str):
    return lambda session: some_go(session) == some and away(session).reasons[why] > 0


def of_three_passes(session) -> bool:
    return {place[0] for place in chosen(session)} == {1, 2, 3}


def of_half_the_rows(session) -> bool:
    return away(session).reasons["OtherShape"] > 0 and set(chosen(session).values()) == {ROWS // 2 * WIDTH * 4}


def nothing_goes(session) -> bool:
    return not some_go(session)


def one_failed(session) -> bool:
    return away(session).reasons["OffloadFailedRuntimeError"] > 0


# Of a lane that fails, four copies are for the link's rate; the first to fail is one out or one back.
TRAININGS = [
    ("at once", {}, whole_ones_go),
    ("slowly", {"lane": {"delay": 0.002}}, whole_ones_go),
    ("sums over several forward passes", {"backward": three_passes_of_which_two_are_summed}, of_three_passes),
    ("a graph that is read twice", {"backward": twice_over_one_graph}, some_go),
    ("gradients of gradients", {"backward": gradients_of_gradients}, some_go),
    ("recomputed regions", {"make": lambda: Recomputed(False), "lane": {"delay": 0.001}}, some_go),
    ("recomputed regions, reentrant", {"make": lambda: Recomputed(True), "lane": {"delay": 0.001}}, some_go),
    ("other shapes stay until a step was timed", {"backward": half_the_rows_from_step_6_on, "steps": 12}, of_half_the_rows),
    ("no host memory", {"budget": 0}, go(False, "HostMemory")),
    ("host memory for some", {"budget": 6 * CHUNK}, go(True, "HostMemory")),
    ("a link that is too slow", {"lane": {"rate": 1e3}}, go(False, "NotHidden")),
    *((f"a lane whose copy {count} fails", {"lane": {"fails_at": count}}, one_failed) for count in (5, 8, 10)),
    ("a model that the user left out", {"make": lambda: kompakt_runtime.exclude(network())}, nothing_goes),
    ("names that the user left out", {"overrides": (SiteOverride("*", "None"),)}, nothing_goes),
]


@pytest.mark.parametrize(("how", "as_meant"), [pytest.param(*row, id=name) for name, *row in TRAININGS])
def test_training_is_plain_training_bit_for_bit(offloaded, how, as_meant):
    how = dict(how)
    make, steps, backward = how.pop("make", network), how.pop("steps", 8), how.pop("backward", once)
    plain = train(make(), steps, backward)
    session = offloaded(ThreadLane(**how.pop("lane", {})), **how)
    assert same(train(make(), steps, backward, session.lane), plain)
    assert as_meant(session), away(session)


@pytest.mark.parametrize("settings", [{}, {"verify": True}, {"activation_gradients": "Bounded"}])
def test_packed_copies_go_too_and_come_back_as_they_were(offloaded, running, settings):
    session = running(min_tensor_bytes=0, **settings)
    here, before = train(network()), session.figures
    session.stop()
    session = offloaded(mode="ErrorBounded", **settings)
    assert same(train(network(), lane=session.lane), here)
    after = session.figures
    assert after.away.tensors > 0
    assert after.away.bytes % (ROWS * WIDTH * 4) != 0, "packed ones among them"
    assert (after.plain_bytes, after.saved_bytes, after.compressed) == (before.plain_bytes, before.saved_bytes, before.compressed)
    assert after.violations == 0
    assert after.checked >= 0.8 * before.checked, "what comes back is compared as well, and nothing fetched only for that"
    assert after.raw == before.raw


def test_the_device_memory_of_what_went_is_free_when_the_backward_pass_begins(warm):
    model, session = warm()
    loss = loss_of(model, 9)
    session.lane.settle()
    session.hooks.offloading._carrier.release(0)
    gone = [entry for entry in session.hooks.ledger._entries.values() if isinstance(entry.copy, Hosted)]
    assert len(gone) == len(chosen(session)) >= 6
    assert all(entry.storage.expired() and entry.alias is None for entry in gone)
    loss.backward()


def test_of_what_comes_back_no_more_than_two_are_there_before_they_are_read(warm):
    model, session = warm()
    loss, most = loss_of(model, 9), []
    hosted = [entry.copy for entry in session.hooks.ledger._entries.values() if isinstance(entry.copy, Hosted)]
    for weight in model.parameters():
        weight.register_hook(lambda _: most.append(sum(each.arrival is not None for each in hosted)))
    loss.backward()
    hosted.clear()
    assert max(most) == 2
    assert away(session).late == 0


def test_graphs_that_nobody_reads_give_their_host_memory_back(warm):
    model, session = warm(lane=ThreadLane(delay=0.001))
    taken = session.hooks.offloading._carrier.taken
    for step in range(20):
        loss_of(model, step)
        session.lane.settle()  # on a busy machine the copies would lag behind, and what is under way be counted
    assert session.hooks.offloading._carrier.taken <= 2 * taken


def break_in_backward(model):
    return model[6].weight.register_hook(lambda _: 1 / 0)


def break_in_forward(model):
    return model[9].register_forward_pre_hook(lambda *_: 1 / 0)


@pytest.mark.parametrize("break_off", [break_in_backward, break_in_forward])
def test_a_pass_that_breaks_off_leaves_nothing(warm, break_off):
    model, session = warm(lane=ThreadLane(delay=0.001))
    broken, before = break_off(model), away(session).tensors
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            loss_of(model, 1).backward()
    broken.remove()
    assert away(session).tensors > before
    if break_off is break_in_backward:
        loss_of(model, 1).backward()  # autograd forgets what was left of the last one
    nothing_left(session)


def test_a_tensor_that_is_changed_while_it_is_away_is_told_in_autograds_words(warm):
    class Careless(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.careless = network(), False

        def forward(self, x):
            saved = self.inner[:4](x) * 1
            z = self.inner[4:](saved)
            if self.careless:
                with torch.no_grad():
                    saved.add_(1)
            return z

    model, _ = warm(Careless())
    model.careless = True
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss_of(model, 1).backward()


def without_gradients_or_in_evaluation(model, session):
    with torch.no_grad():
        model(batch(1))
    model.eval()(batch(1))


def where_it_is_left_out_only_now(model, session):
    with kompakt_runtime.uncompressed():
        once(model, 1)


def in_another_thread(model, session):
    thread = threading.Thread(target=once, args=(model, 1))
    thread.start()
    thread.join()


def while_a_graph_is_captured(model, session):
    session.lane.name = "captured"
    once(model, 1)
    session.lane.name = "one"


STAYS = [
    (without_gradients_or_in_evaluation, None),
    (where_it_is_left_out_only_now, None),
    (in_another_thread, "OtherThread"),
    (while_a_graph_is_captured, "GraphCapture"),
]


@pytest.mark.parametrize(("use", "why"), STAYS, ids=lambda value: getattr(value, "__name__", "-"))
def test_nothing_goes(warm, use, why):
    model, session = warm()
    before = away(session).tensors
    use(model, session)
    assert away(session).tensors == before
    assert why is None or away(session).reasons[why] > 0
    assert why != "GraphCapture" or away(session).reasons[why] == len(chosen(session)), "nothing else is asked then"


def test_a_backward_pass_on_another_stream_gets_memory_of_its_own(warm):
    (model, session), other = warm(lane=ThreadLane(delay=0.001)), network()
    other.load_state_dict(model.state_dict())
    model.zero_grad()
    loss = loss_of(model, 1)
    model[9].weight.register_hook(lambda _: setattr(session.lane, "name", "two"))
    loss.backward()
    session.stop()
    once(other, 1)
    assert same([weight.grad for weight in model.parameters()], [weight.grad for weight in other.parameters()])
    assert session.hooks.offloading._carrier.late > 0


def test_what_somebody_else_holds_stays(warm):
    model, kept = network(), {}
    model[0].register_forward_hook(lambda module, args, output: kept.update(output=output.detach()))
    model, session = warm(model)
    assert list(session.hooks.offloading._plan.reasons.values()).count("HeldElsewhere") == 1
    train(model, 1)
    assert away(session).reasons["HeldElsewhere"] > 0


def test_what_the_device_has_not_reached_is_waited_for_by_nobody(offloaded):
    model, session = network(), offloaded()
    true, session.lane.clock.seconds = session.lane.clock.seconds, lambda start, end: None
    train(model, 6, lane=session.lane)
    assert away(session).tensors == 0
    session.lane.clock.seconds = true
    train(model, 3, lane=session.lane)
    assert away(session).tensors > 0


def test_without_a_gpu_all_stays_and_is_counted(running):
    session = running(mode="Lossless", offload="Auto")
    plain = train(network(), 3)
    session.stop()
    assert same(train(network(), 3), plain)
    assert away(session).reasons == {"NoGpu": away(session).reasons["NoGpu"]}
    assert away(session).tensors == 0
