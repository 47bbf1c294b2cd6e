"""examples/frameworks/kompakt_progress.py in the frameworks themselves: what the operator's reader finds in the file."""

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from kompakt_core.job import progress
from kompakt_runtime.figures import progress as runtime
from tests.support.examples import FRAMEWORKS
from tests.support.needs import needs

pytestmark = pytest.mark.filterwarnings("default")  # what frameworks warn of is theirs
STEPS, BATCH = 7, 4


@pytest.fixture
def told(tmp_path, monkeypatch) -> Path:
    """The file that the pod's environment names."""
    monkeypatch.setenv("KOMPAKT_PROGRESS_FILE", str(tmp_path / "progress.json"))
    return tmp_path / "progress.json"


@pytest.fixture
def ours() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kompakt_progress", FRAMEWORKS / "kompakt_progress.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> progress.Progress:
    """By the operator's reader, from what the runtime's takes."""
    words = json.loads(path.read_text())
    assert runtime.read(str(path)) == words, "nothing in it is malformed"
    found = progress.read(words)
    assert found is not None
    return found


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_file_is_written_at_most_once_a_second_and_at_the_end(ours, told):
    file = ours.ProgressFile(clock := Clock())
    file.say(1, 10, loss=torch.tensor(0.5), samples=8)
    assert read(told) == progress.Progress(1, 10, 0.5)
    clock.now += 0.9
    file.say(2, 10)
    assert read(told).step == 1
    clock.now += 1.1
    file.say(5, 10, samples=8)
    assert read(told) == progress.Progress(5, 10, samples_per_second=16.0)
    file.say(10, None, loss=math.inf, last=True)
    assert read(told) == progress.Progress(10, loss=math.inf)
    assert [path.name for path in told.parent.iterdir()] == [told.name], "no part is left behind"


def test_outside_of_kompakt_nothing_is_written(ours, monkeypatch, tmp_path):
    monkeypatch.delenv("KOMPAKT_PROGRESS_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    ours.ProgressFile().say(1, 10, last=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_ends_no_training(ours, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KOMPAKT_PROGRESS_FILE", str(tmp_path / "none" / "progress.json"))
    file = ours.ProgressFile()
    file.say(1, 10)
    file.say(2, 10, last=True)
    assert capsys.readouterr().out.count("progress is no longer told") == 1


def rows() -> TensorDataset:
    return TensorDataset(torch.randn(STEPS * BATCH, 3))


class Squares(nn.Module):
    """A Trainer gives it named inputs and takes the loss from among its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(3, 1)

    def forward(self, x):
        return {"loss": self.line(x).square().mean()}


def test_in_a_trainer_of_transformers(ours, told, tmp_path):
    needs("transformers", "zoo")
    from transformers import Trainer, TrainingArguments

    settings = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "logging_steps": 3, "use_cpu": True}
    arguments = TrainingArguments(str(tmp_path / "out"), num_train_epochs=1, per_device_train_batch_size=BATCH, **settings)
    collate = lambda batch: {"x": torch.stack([row[0] for row in batch])}  # noqa: E731
    callback = ours.transformers_callback()
    Trainer(Squares(), arguments, collate, train_dataset=rows(), callbacks=[callback]).train()
    found = read(told)
    assert (found.step, found.total) == (STEPS, STEPS)
    assert 0 < found.loss < 100
    assert found.samples_per_second > 0
    told.unlink()
    callback.on_train_end(arguments, SimpleNamespace(is_world_process_zero=False, global_step=1, max_steps=2), None)
    assert not told.exists(), "only rank 0 writes"


def test_in_lightning(ours, told):
    pytest.importorskip("lightning", reason="lightning is not installed: `make sync-frameworks`")
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(3, 1)

        def training_step(self, batch, _number):
            return self.line(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    quiet = {"logger": False, "enable_model_summary": False, "enable_progress_bar": False, "enable_checkpointing": False}
    callback = ours.lightning_callback(samples=BATCH)
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", callbacks=[callback], **quiet)
    trainer.fit(Module(), DataLoader(rows(), batch_size=BATCH))
    found = read(told)
    assert (found.step, found.total) == (STEPS, STEPS)
    assert 0 < found.loss < 100
    assert found.samples_per_second > 0
    told.unlink()
    callback.on_train_end(SimpleNamespace(is_global_zero=False, estimated_stepping_batches=2, global_step=1), None)
    assert not told.exists(), "only rank 0 writes"


def test_in_a_loop_with_accelerate(ours, told):
    pytest.importorskip("accelerate", reason="accelerate is not installed: `make sync-frameworks`")
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, log_with=ours.accelerate_tracker(total=STEPS, samples=BATCH))
    accelerator.init_trackers("train")
    model = Squares()
    model, optimizer, data = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(rows(), batch_size=BATCH)
    )
    for step, (x,) in enumerate(data, start=1):
        optimizer.zero_grad()
        loss = model(x)["loss"]
        accelerator.backward(loss)
        optimizer.step()
        accelerator.log({"loss": loss.item()}, step=step)
        assert told.exists()
    accelerator.end_training()
    found = read(told)
    assert (found.step, found.total) == (STEPS, STEPS)
    assert found.loss == pytest.approx(loss.item())
    assert found.samples_per_second > 0
