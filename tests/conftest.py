"""For all tests. Generated examples get no time limit of their own: on a busy machine a limit per example fails tests by chance;
pytest's own timeout still ends one that hangs. A test may be a coroutine. Files that import PyTorch are skipped without it.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.needs import needs

ROOT = Path(__file__).parent
TORCH = (
    "unit/runtime/*",
    "unit/benchmarks/test_accuracy.py",
    "unit/benchmarks/test_gpu_steps.py",
    "unit/benchmarks/test_zoo*.py",
    "contract/test_profile.py",
    "gpu/test_*_gpu.py",
)
WITHOUT_TORCH = {  # of the runtime's tests
    *("test_batch.py", "test_bootstrap.py", "test_bounds.py", "test_config.py", "test_export.py", "test_host_memory.py"),
    *("test_killed.py", "test_old_torch.py", "test_pagecache.py", "test_plan.py", "test_policy.py", "test_progress.py"),
    "test_frameworks.py",
}
MORE = {
    "test_training.py": ["sklearn"], "test_injection.py": ["sklearn"], "test_accuracy.py": ["sklearn", "skimage"],
    "test_zoo.py": ["sklearn", "skimage"], "test_zoo_models.py": ["sklearn", "skimage"],
    "test_zoo_accuracy.py": ["sklearn", "skimage"],
    "test_one_pass.py": ["triton"],
}  # fmt: skip


settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests that are coroutines run on asyncio, as our programs do; each has an event loop of its own."""
    return "asyncio"


class WithTorch(pytest.Module):
    """A file of tests that cannot even be imported without PyTorch."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        for package in ("torch", *MORE.get(self.path.name, ())):
            needs(package)
        return super().collect()


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    path = module_path.relative_to(ROOT)
    if path.name in WITHOUT_TORCH or not any(path.match(pattern) for pattern in TORCH):
        return None
    made: pytest.Module = WithTorch.from_parent(parent, path=module_path)
    return made
