"""Tells kompakt how far a training is: callbacks for Transformers, Lightning and Accelerate. Copy this file beside your script.

In a TrainingJob `status.progress` then shows step, loss and the expected end. Anywhere else, where KOMPAKT_PROGRESS_FILE is not
set, nothing is written. The file imports a framework only when you ask for its callback.
"""

import json
import os
import time
from collections.abc import Callable
from typing import Any

EVERY_SECONDS = 1.0


class ProgressFile:
    """One JSON object in the file named by KOMPAKT_PROGRESS_FILE, written at most once a second; only rank 0 may write it.

    now: a clock in seconds that never goes back.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.path = os.environ.get("KOMPAKT_PROGRESS_FILE")
        self.now = now
        self.seen: tuple[float, int] | None = None  # when it was written last, and the step

    def say(self, step: int, total: int | None, loss: Any = None, samples: int | None = None, last: bool = False) -> None:
        """step: optimizer steps done; total: to do in all; loss: a number or a tensor, read only when the file is written;
        samples: of all ranks in a step; last: write it whatever the clock says.
        """
        now = self.now()
        if self.path is None or (self.seen and now < self.seen[0] + EVERY_SECONDS and not last):
            return
        number = None if loss is None else float(loss)
        words = {"step": step, "total": total, "loss": number, "samplesPerSecond": self._rate(now, step, samples)}
        self.seen = now, step
        try:
            with open(self.path + ".part", "w") as file:
                json.dump({name: value for name, value in words.items() if value is not None}, file)
            os.replace(self.path + ".part", self.path)  # a reader sees the old file or the new one
        except OSError as error:  # a full disk ends no training
            print(f"{self.path}: {error}; progress is no longer told", flush=True)
            self.path = None

    def _rate(self, now: float, step: int, samples: int | None) -> float | None:
        if samples is None or self.seen is None or now <= self.seen[0] or step <= self.seen[1]:
            return None
        return samples * (step - self.seen[1]) / (now - self.seen[0])


def transformers_callback() -> Any:
    """For `Trainer(..., callbacks=[transformers_callback()])`. The loss is the one that was logged last (`logging_steps`)."""
    from transformers import TrainerCallback

    class TellProgress(TrainerCallback):
        def __init__(self) -> None:
            self.file, self.loss = ProgressFile(), None

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
            self.loss = (logs or {}).get("loss", self.loss)

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self._say(args, state)

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self._say(args, state, last=True)

        def _say(self, args: Any, state: Any, last: bool = False) -> None:
            samples = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
            if state.is_world_process_zero:
                self.file.say(state.global_step, state.max_steps, self.loss, samples, last)

    return TellProgress()


def lightning_callback(samples: int | None = None) -> Any:
    """For `lightning.Trainer(..., callbacks=[lightning_callback()])`. samples: of all ranks in an optimizer step, if known."""
    from lightning import Callback

    class TellProgress(Callback):
        def __init__(self) -> None:
            self.file, self.loss = ProgressFile(), None

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            self._say(trainer)

        def on_train_end(self, trainer: Any, module: Any) -> None:
            self._say(trainer, last=True)

        def _say(self, trainer: Any, last: bool = False) -> None:
            steps = trainer.estimated_stepping_batches
            total = int(steps) if 0 < steps < float("inf") else None  # no end: -1 or infinity
            if trainer.is_global_zero:
                self.file.say(trainer.global_step, total, self.loss, samples, last)

    return TellProgress()


def accelerate_tracker(total: int | None = None, samples: int | None = None) -> Any:
    """For `Accelerator(log_with=accelerate_tracker(total=steps))`, then `accelerator.init_trackers("train")`, after each step
    `accelerator.log({"loss": loss}, step=step)`. samples: of all ranks in an optimizer step, if known.
    """
    from accelerate.tracking import GeneralTracker, on_main_process

    class TellProgress(GeneralTracker):
        name, requires_logging_directory = "kompakt", False

        def __init__(self) -> None:
            self.tracker = ProgressFile()  # first: what is above it asks for it
            super().__init__()
            self.said: tuple[Any, ...] = ()

        @on_main_process
        def log(self, values: dict[str, Any], step: int | None = None, **more: Any) -> None:
            if step is not None:
                self.said = step, total, values.get("loss"), samples
                self.tracker.say(*self.said)

        @on_main_process
        def finish(self) -> None:
            if self.said:
                self.tracker.say(*self.said, last=True)

    return TellProgress()
