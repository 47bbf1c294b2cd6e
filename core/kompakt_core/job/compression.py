"""`spec.activationCompression`: how saved tensors are kept smaller."""

import re
from typing import Annotated, ClassVar, Final

from msgspec import field

from kompakt_core.job import rejections
from kompakt_core.job.choices import (
    MAX_BATCH,
    MAX_OVERRIDES,
    ActivationGradients,
    BatchSize,
    CompressionMode,
    FailurePolicy,
    NonlinearInputs,
    Offload,
)
from kompakt_core.schema.meta import Broken, Declared, ValidationRule, about, unless
from kompakt_core.schema.words import shown

TARGET_CEL: Final = r"self.matches('^0?\\.[0-9]+$') && double(self) > 0.0 && double(self) <= 0.1"
TARGET: Final = re.compile(r"0?\.[0-9]{1,9}", re.ASCII)


# An amount as Kubernetes writes it, or percents; the runtime's amounts.py reads the same.
BUDGET: Final = re.compile(
    r"[0-9]{1,15}|[0-9]{1,15}(?:\.[0-9]{1,3})?(?:[kMGT]|[KMGT]i)|(?:100(?:\.0{1,3})?|[0-9]{1,2}(?:\.[0-9]{1,3})?)%", re.ASCII
)
BUDGET_CEL: Final = (
    r"self.matches('[1-9]') && (self.matches('^[0-9]{1,15}((\\.[0-9]{1,3})?([kMGT]|[KMGT]i))?$') || "
    r"self.matches('^(100(\\.0{1,3})?|[0-9]{1,2}(\\.[0-9]{1,3})?)%$'))"
)
FORMERLY: Final = {
    NonlinearInputs.KEEP: ActivationGradients.EXACT,
    NonlinearInputs.BOUNDED: ActivationGradients.BOUNDED,
}


def _no_target(text: str) -> Broken:
    good = TARGET.fullmatch(text) is not None and 0 < float(text) <= 0.1
    return None if good else ("", f"; got {shown(text)}")


def _no_budget(text: str) -> Broken:
    good = BUDGET.fullmatch(text) is not None and re.search("[1-9]", text) is not None
    return None if good else ("", f"; got {shown(text)}")


class Override(Declared, frozen=True):
    """Modules whose dotted name matches the glob `modules` use another mode."""

    modules: Annotated[
        str,
        about(
            "Modules that this entry is about: a glob over dotted module names, or class:<name> for a class of modules.",
            shortest=1,
            longest=256,
            example="head.*",
            right="must be a module name or glob of 1 to 256 characters",
        ),
    ]
    mode: Annotated[CompressionMode, about("The mode of these modules, in place of the job's.", example="Lossless")] = (
        CompressionMode.NONE
    )


class ActivationCompression(Declared, frozen=True):
    """`target` is decimal text: share of what the optimizer steps by that the gradient error may reach.

    `base_batch`: what Raise begins with, `max_batch`: what it never goes above; 0: not said. Raise implies policy Fail.
    """

    mode: Annotated[
        CompressionMode,
        about(
            "How saved tensors are kept. None: as they are. Lossless: smaller, gradients stay bit for bit. ErrorBounded: what "
            "the backward pass reads may lose precision, within bounds that follow from targetGradientError.",
            example="Lossless",
        ),
    ] = CompressionMode.ERROR_BOUNDED
    target: Annotated[
        str,
        about(
            "Largest error that compression may add to a layer's weight gradient. Decimal text above 0, at most 0.1.",
            unit="share of what the optimizer steps by in the layer's weight, as of the mean |momentum|",
            longest=11,
            example="0.03",
            rules=(ValidationRule(TARGET_CEL, rejections.TARGET, _no_target),),
        ),
    ] = field(default="0.01", name="targetGradientError")
    overrides: Annotated[
        tuple[Override, ...],
        about(
            "Modules that use another mode than the job.",
            longest=MAX_OVERRIDES,
            example=[{"modules": "head.*", "mode": "None"}],
        ),
    ] = ()
    min_tensor_bytes: Annotated[
        int, about("Saved tensors smaller than this stay as they are.", unit="bytes", low=0, example=1048576)
    ] = 65536
    activation_gradients: (
        Annotated[
            ActivationGradients,
            about(
                "Gradients of activations in mode ErrorBounded. Bounded: what norms, activation functions and attention read is "
                "packed too, within bounds of its own. Exact: they are those of plain training bit for bit. Absent: Bounded; a "
                "job that runs keeps what its first attempt had, see status.activationGradients.",
                example="Exact",
            ),
        ]
        | None
    ) = None
    nonlinear_inputs: (
        Annotated[
            NonlinearInputs,
            about("Deprecated, use activationGradients: Keep is Exact, Bounded is Bounded.", example="Keep"),
        ]
        | None
    ) = None
    offload: Annotated[
        Offload,
        about(
            "Auto: saved tensors wait in the host's pinned memory where copies hide behind computing; that memory counts "
            "towards the pod's limit. Needs a mode other than None.",
            example="Auto",
        ),
    ] = Offload.NEVER
    memory_budget: Annotated[
        str,
        about(
            "How much memory of its GPU a step may take: an amount, or a share of the GPU's memory. Only as much is packed as "
            "keeps a step within it. Absent: as much as can be. Needs mode ErrorBounded.",
            longest=24,
            example="20Gi",
            rules=(ValidationRule(BUDGET_CEL, rejections.BUDGET, _no_budget),),
        ),
    ] = ""
    batch_size: Annotated[
        BatchSize,
        about(
            "Keep: the batch is the script's. Suggest: status.compression shows how large a batch would fit. Raise: attempts "
            "after the first train with that batch, which the script takes from KOMPAKT_BATCH_SIZE.",
            example="Suggest",
        ),
    ] = BatchSize.KEEP
    base_batch: Annotated[
        int,
        about(
            "Batch that the first attempt trains with. Required with batchSize Raise, refused otherwise.",
            unit="samples",
            low=1,
            high=MAX_BATCH,
            example=64,
        ),
    ] = field(default=0, name="baseBatchSize")
    max_batch: Annotated[
        int,
        about(
            "Batch that Raise never exceeds; at least baseBatchSize. Absent: as much as fits.",
            unit="samples",
            low=1,
            high=MAX_BATCH,
            example=512,
        ),
    ] = field(default=0, name="maxBatchSize")
    failure_policy: Annotated[
        FailurePolicy,
        about(
            "What a worker does when compression cannot run. Ignore: train without it and report why. Fail: end before "
            "training. batchSize Raise implies Fail.",
            example="Fail",
        ),
    ] = FailurePolicy.IGNORE

    @property
    def gradients_asked(self) -> ActivationGradients | None:
        """activationGradients as the spec has it, by either name."""
        return self.activation_gradients if self.nonlinear_inputs is None else FORMERLY[self.nonlinear_inputs]

    RULES: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "self.mode != 'None' || self.offload == 'Never'",
            rejections.OFFLOAD_WITHOUT_MODE,
            unless(lambda c: c.mode is not CompressionMode.NONE or c.offload is Offload.NEVER, "offload"),
        ),
        ValidationRule(
            "!has(self.memoryBudget) || self.mode == 'ErrorBounded'",
            rejections.BUDGET_WITHOUT_MODE,
            unless(lambda c: not c.memory_budget or c.mode is CompressionMode.ERROR_BOUNDED, "memoryBudget"),
        ),
        ValidationRule(
            "!has(self.activationGradients) || self.activationGradients == 'Exact' || self.mode == 'ErrorBounded'",
            rejections.GRADIENTS,
            unless(
                lambda c: c.activation_gradients is not ActivationGradients.BOUNDED or c.mode is CompressionMode.ERROR_BOUNDED,
                "activationGradients",
            ),
        ),
        ValidationRule(
            "!has(self.nonlinearInputs) || self.nonlinearInputs == 'Keep' || self.mode == 'ErrorBounded'",
            rejections.NONLINEAR,
            unless(
                lambda c: c.nonlinear_inputs is not NonlinearInputs.BOUNDED or c.mode is CompressionMode.ERROR_BOUNDED,
                "nonlinearInputs",
            ),
        ),
        ValidationRule(
            "!has(self.activationGradients) || !has(self.nonlinearInputs) || "
            "(self.activationGradients == 'Exact') == (self.nonlinearInputs == 'Keep')",
            rejections.GRADIENTS_TWICE,
            unless(
                lambda c: c.activation_gradients in (None, c.gradients_asked),
                "nonlinearInputs",
            ),
        ),
        ValidationRule(
            "self.mode != 'None' || self.batchSize == 'Keep'",
            rejections.BATCH_WITHOUT_MODE,
            unless(lambda c: c.mode is not CompressionMode.NONE or c.batch_size is BatchSize.KEEP, "batchSize"),
        ),
        ValidationRule(
            "has(self.baseBatchSize) == (self.batchSize == 'Raise')",
            rejections.BATCH_BASE,
            unless(lambda c: bool(c.base_batch) == (c.batch_size is BatchSize.RAISE), "baseBatchSize"),
        ),
        ValidationRule(
            "!has(self.maxBatchSize) || has(self.baseBatchSize) && self.maxBatchSize >= self.baseBatchSize",
            rejections.BATCH_MAX,
            unless(lambda c: not c.max_batch or 0 < c.base_batch <= c.max_batch, "maxBatchSize"),
        ),
    )


# What a job without the block has.
NO_COMPRESSION = ActivationCompression(CompressionMode.NONE)
