"""Saved tensors in host memory during whole trainings: values are those of plain training, and nothing is left behind."""

import functools
import gc
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import kompakt_runtime
from kompakt_runtime.carrier import Carrier
from kompakt_runtime.config import SiteOverride
from kompakt_runtime.offload import Offloading
from tests.support.runtime.thread_lane import ThreadLane

torch.optim.SGD([torch.zeros(1)])  # loads the compiler once, which takes seconds
ROWS, WIDTH, CHUNK = 64, 64, 4096


def network() -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [part for _ in range(4) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 4))


def batch(seed: int) -> torch.Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed))


def loss_of(model: nn.Module, seed: int) -> torch.Tensor:
    return model(batch(seed)).square().sum()


def train(model: nn.Module, steps: int = 8, backward=lambda model, seed: loss_of(model, seed).backward()) -> list[torch.Tensor]:
    """Gradients of all steps and the weights at the end."""
    optimizer, found = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), []
    for step in range(steps):
        optimizer.zero_grad()
        backward(model, step)
        found += [weight.grad.clone() for weight in model.parameters()]
        optimizer.step()
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
    session.lane.copy([]).wait()  # all that was given to it is over
    assert session.lane.lost == 0, "a copy's memory was gone before its turn"
    carrier = session.hooks.offloading._carrier
    if carrier is not None:
        carrier.release(0)
        assert carrier.held == 0
        assert len(carrier.home) * CHUNK == carrier.taken <= carrier.budget, "a chunk is lost or came home twice"
        assert len({chunk.data_ptr() for chunk in carrier.home}) == len(carrier.home)


def away(session):
    return session.figures.away


def warmed_up(session, model: nn.Module, loss=loss_of) -> None:
    """From here on tensors go: a step was timed, and its copies are over before the next one, however busy the machine is."""

    def backward(model: nn.Module, seed: int) -> None:
        loss(model, seed).backward()
        session.lane.settle()

    train(model, 5, backward)
    assert session.hooks.offloading._plan.chosen, away(session).reasons


@pytest.mark.parametrize("delay", [0.0, 0.002])
def test_training_is_plain_training_bit_for_bit(offloaded, delay):
    plain = train(network())
    session = offloaded(ThreadLane(delay=delay))
    assert same(train(network()), plain)
    found = away(session)
    assert found.tensors > 0
    assert found.bytes == found.tensors * ROWS * WIDTH * 4
    assert found.late == 0
    assert not [reason for reason in found.reasons if "Failed" in reason]


@pytest.mark.parametrize("settings", [{}, {"verify": True}, {"nonlinear": "Bounded"}])
def test_packed_copies_go_too_and_come_back_as_they_were(offloaded, running, settings):
    session = running(min_tensor_bytes=0, **settings)
    here, before = train(network()), session.figures
    session.stop()
    session = offloaded(mode="ErrorBounded", **settings)
    assert same(train(network()), here)
    after = session.figures
    assert after.away.tensors > 0
    assert after.away.bytes % (ROWS * WIDTH * 4) != 0, "packed ones among them"
    assert (after.plain_bytes, after.saved_bytes, after.compressed) == (before.plain_bytes, before.saved_bytes, before.compressed)
    assert after.violations == 0
    assert after.checked >= before.checked, "what comes back is compared as well"
    assert after.raw == before.raw


def test_the_device_memory_of_what_went_is_free_when_the_backward_pass_begins(offloaded):
    model, session = network(), offloaded()
    warmed_up(session, model)
    loss = loss_of(model, 9)
    session.lane.copy([]).wait()
    session.hooks.offloading._carrier.release(0)
    entries = list(session.hooks.ledger._entries.values())
    gone = [entry for entry in entries if entry.storage.expired()]
    assert len(gone) == len(session.hooks.offloading._plan.chosen) >= 6
    assert all(entry.alias is None for entry in gone)
    loss.backward()


def test_of_what_comes_back_no_more_than_two_are_there_before_they_are_read(offloaded):
    model, session = network(), offloaded()
    warmed_up(session, model)
    loss, most = loss_of(model, 9), []
    hosted = [entry.copy for entry in session.hooks.ledger._entries.values() if entry.alias is None]
    for weight in model.parameters():
        weight.register_hook(lambda _: most.append(sum(each.arrival is not None for each in hosted)))
    loss.backward()
    hosted.clear()
    assert max(most) == 2
    assert away(session).late == 0


def test_gradients_of_several_forward_passes_are_summed_as_ever(offloaded):
    def twice(model, seed):
        loss_of(model, seed).backward()
        (loss_of(model, seed + 50) + loss_of(model, seed + 90)).backward()

    plain = train(network(), backward=twice)
    session = offloaded()
    assert same(train(network(), backward=twice), plain)
    assert {place[0] for place in session.hooks.offloading._plan.chosen} == {1, 2, 3}


def test_a_graph_that_is_kept_may_be_read_again(offloaded):
    def again(model, seed):
        loss = loss_of(model, seed)
        loss.backward(retain_graph=True)
        loss.backward()

    plain = train(network(), backward=again)
    session = offloaded()
    assert same(train(network(), backward=again), plain)
    assert away(session).tensors > 0


def test_gradients_of_gradients_are_those_of_plain_training(offloaded):
    def penalised(model, seed):
        x = batch(seed).requires_grad_()
        (slope,) = torch.autograd.grad(model(x).square().mean(), x, create_graph=True)
        slope.square().mean().backward()

    plain = train(network(), backward=penalised)
    session = offloaded()
    assert same(train(network(), backward=penalised), plain)
    assert away(session).tensors > 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_regions_train_as_ever(offloaded, reentrant):
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.inner, self.last = network()[:6], network()[6:12], nn.Linear(WIDTH, 4)

        def forward(self, x):
            return self.last(checkpoint(self.inner, self.first(x), use_reentrant=reentrant))

    plain = train(Parts())
    session = offloaded(ThreadLane(delay=0.001))
    assert same(train(Parts()), plain)
    assert away(session).tensors > 0


def test_graphs_that_nobody_reads_give_their_host_memory_back(offloaded):
    lane = ThreadLane(delay=0.001)
    model, session = network(), offloaded(lane)
    warmed_up(session, model)
    taken = session.hooks.offloading._carrier.taken
    for step in range(20):
        loss_of(model, step)
        lane.settle()  # on a busy machine the copies would lag behind, and what is under way be counted
    assert session.hooks.offloading._carrier.taken <= 2 * taken
    assert same(train(network(), 2), train(network(), 2))


def test_a_backward_pass_that_breaks_off_leaves_nothing(offloaded):
    model, session = network(), offloaded(ThreadLane(delay=0.001))
    warmed_up(session, model)
    here = model[6].weight.register_hook(lambda _: 1 / 0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            loss_of(model, 1).backward()
    here.remove()
    loss_of(model, 1).backward()  # autograd forgets what was left of the last one
    nothing_left(session)


def test_a_forward_pass_that_breaks_off_leaves_nothing(offloaded):
    model, session = network(), offloaded(ThreadLane(delay=0.001))
    warmed_up(session, model)
    here = model[9].register_forward_pre_hook(lambda *_: 1 / 0)
    before = away(session).tensors
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            loss_of(model, 1)
    here.remove()
    assert away(session).tensors > before
    nothing_left(session)


def test_a_tensor_that_is_changed_while_it_is_away_is_told_in_autograds_words(offloaded):
    class Careless(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.careless = network(), False

        def forward(self, x):
            y = self.inner[:4](x)
            saved = y * 1
            z = self.inner[4:](saved)
            if self.careless:
                with torch.no_grad():
                    saved.add_(1)
            return z

    model, session = Careless(), offloaded()
    warmed_up(session, model)
    model.careless = True
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss_of(model, 1).backward()


def test_without_gradients_or_in_evaluation_nothing_goes(offloaded):
    model, session = network(), offloaded()
    warmed_up(session, model)
    before = away(session).tensors
    with torch.no_grad():
        model(batch(1))
    model.eval()(batch(1))
    assert away(session).tensors == before


def test_while_a_graph_is_captured_nothing_goes_and_nothing_is_asked(offloaded):
    model, session = network(), offloaded()
    warmed_up(session, model)
    before, session.lane.name = away(session).tensors, "captured"
    loss_of(model, 1).backward()
    session.lane.name = "one"
    assert away(session).tensors == before
    assert away(session).reasons["GraphCapture"] == len(session.hooks.offloading._plan.chosen)


def test_a_backward_pass_on_another_stream_gets_memory_of_its_own(offloaded):
    model, session, other = network(), offloaded(ThreadLane(delay=0.001)), network()
    warmed_up(session, model)
    other.load_state_dict(model.state_dict())
    model.zero_grad()
    loss = loss_of(model, 1)
    model[9].weight.register_hook(lambda _: setattr(session.lane, "name", "two"))
    loss.backward()
    session.stop()
    loss_of(other, 1).backward()
    assert same([weight.grad for weight in model.parameters()], [weight.grad for weight in other.parameters()])
    assert session.hooks.offloading._carrier.late > 0


@pytest.mark.parametrize("settings", [{"overrides": (SiteOverride("*", "None"),)}, {"min_tensor_bytes": 0}])
def test_what_the_user_left_out_stays(offloaded, settings):
    session = offloaded(**settings)
    model = network()
    if not settings.get("overrides"):
        model = kompakt_runtime.exclude(model)
    train(model)
    assert away(session).tensors == 0


def test_what_somebody_else_holds_stays(offloaded):
    model, session, kept = network(), offloaded(), {}
    model[1].register_forward_hook(lambda module, args, output: kept.update(output=output.detach()))
    warmed_up(session, model)
    assert list(session.hooks.offloading._plan.reasons.values()).count("HeldElsewhere") == 1
    train(model, 1)
    assert away(session).reasons["HeldElsewhere"] > 0


def test_what_is_left_out_only_later_stays_then(offloaded):
    model, session = network(), offloaded()
    warmed_up(session, model)
    before = away(session).tensors
    with kompakt_runtime.uncompressed():
        loss_of(model, 1).backward()
    assert away(session).tensors == before


def test_other_shapes_stay_until_another_step_was_timed(offloaded):
    def backward(model, seed):
        model(batch(seed)[: ROWS if seed < 6 else ROWS // 2].clone()).square().sum().backward()

    plain = train(network(), 12, backward)
    session = offloaded()
    assert same(train(network(), 12, backward), plain)
    assert away(session).reasons["OtherShape"] > 0
    assert set(session.hooks.offloading._plan.chosen.values()) == {ROWS // 2 * WIDTH * 4}


def test_forward_passes_of_other_threads_are_left_alone(offloaded):
    model, session = network(), offloaded()
    warmed_up(session, model)
    before = away(session).tensors
    thread = threading.Thread(target=lambda: loss_of(model, 1).backward())
    thread.start()
    thread.join()
    assert away(session).tensors == before
    assert away(session).reasons["OtherThread"] > 0


@pytest.mark.parametrize("budget", [0, 6 * CHUNK])
def test_host_memory_is_a_limit(offloaded, budget):
    plain = train(network())
    session = offloaded(budget=budget)
    assert same(train(network()), plain)
    assert away(session).reasons["HostMemory"] > 0
    assert (away(session).tensors > 0) == (budget > 0)


def test_a_link_that_is_too_slow_carries_nothing(offloaded):
    session = offloaded(ThreadLane(rate=1e3))
    train(network())
    assert away(session).tensors == 0
    assert away(session).reasons["NotHidden"] > 0


@pytest.mark.parametrize("good", [4, 7, 9])
def test_a_lane_that_fails_leaves_plain_training(offloaded, good):
    """Four copies are for the link's rate; the first to fail is one out or one back."""
    plain, lane = train(network()), ThreadLane()
    copy, calls = lane.copy, []

    def failing(pairs):
        calls.append(pairs)
        if len(calls) == good + 1:
            raise RuntimeError("no link")
        return copy(pairs)

    lane.copy = failing
    session = offloaded(lane)
    assert same(train(network()), plain)
    assert away(session).reasons["OffloadFailedRuntimeError"] > 0


def test_what_the_device_has_not_reached_is_waited_for_by_nobody(offloaded):
    model, session = network(), offloaded()
    true, session.lane.clock.seconds = session.lane.clock.seconds, lambda start, end: None
    train(model, 6)
    assert away(session).tensors == 0
    session.lane.clock.seconds = true
    train(model, 3)
    assert away(session).tensors > 0


def test_without_a_gpu_all_stays_and_is_counted(running):
    session = running(mode="Lossless", offload="Auto")
    plain = train(network(), 3)
    session.stop()
    assert same(train(network(), 3), plain)
    assert away(session).reasons == {"NoGpu": away(session).reasons["NoGpu"]}
    assert away(session).tensors == 0
