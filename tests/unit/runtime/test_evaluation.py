"""Fine-tuning in evaluation mode is compressed from its second step on, and the first is counted."""

import torch
from torch import nn

from tests.support.runtime.small_training import Holder, batch, network, train_step


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-5)


def test_a_model_that_is_trained_in_evaluation_mode_is_compressed(running):
    model, session = network().eval(), running()
    optimizer = sgd(model)
    train_step(model, optimizer, batch())
    assert (session.figures.forwards, session.figures.raw["EvaluationMode"]) == (0, 1)
    for step in range(3):
        train_step(model, optimizer, batch(step))
    assert session.figures.forwards == 3
    assert session.figures.layers.keys() >= {"2", "5"}
    assert session.figures.raw["EvaluationMode"] == 1


def test_a_part_in_training_mode_is_compressed_as_ever(running):
    model, session = Holder(network(), lambda inner, x: inner(x)), running()
    model.training = False
    optimizer = sgd(model)
    train_step(model, optimizer, batch())
    assert session.figures.forwards == 1


def test_a_look_at_validation_data_between_two_steps_is_none(running):
    model, session = network(), running()
    optimizer = sgd(model)
    for step in range(3):
        train_step(model.train(), optimizer, batch(step))
        model.eval()(batch())
    assert session.figures.forwards == 3
    assert "EvaluationMode" not in session.figures.raw


def test_a_teacher_that_nobody_steps_is_none(running):
    torch.manual_seed(0)
    teacher, model, session = nn.Linear(108, 4).eval(), network(), running()
    optimizer = sgd(model)
    for step in range(3):
        optimizer.zero_grad()
        (model(batch(step)) - teacher(batch(step).flatten(1))).square().sum().backward()
        optimizer.step()
    assert session.figures.forwards == 3
    assert "Linear" not in session.figures.layers


def test_without_gradients_nothing_is_looked_at(running):
    model, session = network().eval(), running()
    for step in range(3):
        train_step(model, sgd(model), batch(step))
    with torch.no_grad():
        model(batch())
    assert session.figures.forwards == 2
