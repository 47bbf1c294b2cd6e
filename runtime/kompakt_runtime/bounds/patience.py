"""How long a layer is measured while no optimizer step tells its bound. Measuring costs time and memory, so it always ends."""

from typing import Final

# Measured steps in a row that give no figures. After them a layer is measured when its turn comes, as any other.
TRIES: Final = 8
# Outermost forward passes that reach a measured layer before its weight is stepped: more than loops accumulate gradients over.
PASSES: Final = 256
# Steps of optimizers that do not know its weight: more than one of several optimizers is ahead of another.
OTHERS: Final = 16


class Patience:
    """alone: nobody who is known to us steps the weight (master copies, a loop's own rule), so forward passes count as steps."""

    def __init__(self) -> None:
        self.alone = False
        self._tries = self._passes = self._others = self._last = 0

    def passed(self, number: int) -> bool:
        """The outermost forward pass of this number reaches the layer; is it the first time?"""
        first, self._last = number != self._last, number
        self._passes += first
        return first

    def other(self) -> None:
        """An optimizer stepped that does not know the weight."""
        self._others += 1

    @property
    def over(self) -> bool:
        """Waiting longer for a step is in vain. Asked when a forward pass begins that is counted already."""
        return self._passes > (0 if self.alone else PASSES) or self._others >= OTHERS

    def met(self) -> None:
        """A measurement gave a bound."""
        self._tries = 0

    def failed(self) -> None:
        """A measurement gave no figures."""
        self._tries += 1

    def again(self, wanted: bool) -> bool:
        """A measured step is over, and one begins. Is it measured too, for want of figures?"""
        self._passes = self._others = 0
        return wanted and self._tries < TRIES
