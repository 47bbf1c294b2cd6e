"""The alert about a training that makes no step, by a real Prometheus that scrapes the runtime's own page."""

import json
from pathlib import Path

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import metrics
from tests.support.prometheus import job, prometheus
from tools.kube.ports import free_ports
from tools.kube.session import eventually


def test_a_training_that_makes_no_step_is_told_until_it_goes_on(tmp_path: Path) -> None:
    file, port = tmp_path / "progress.json", free_ports(1)[0]
    config = RuntimeConfig("ErrorBounded", progress_file=str(file), metrics_port=port, state_dir=str(tmp_path))

    def says(step: int) -> None:
        file.write_text(json.dumps({"step": step, "total": 20}))

    says(11)
    server = metrics.serve(config)
    assert server is not None
    try:
        with prometheus(tmp_path / "prometheus", [job("workers", f"127.0.0.1:{port}")], minute=0.1) as seen:
            eventually(lambda: seen.firing() == {"KompaktTrainingStalled"}, "it fires")
            says(12)
            eventually(lambda: not seen.firing(), "it goes on")
            says(20)
            eventually(lambda: seen.query("kompakt_progress_step offset 3s == 20"), "it is over for as long")
            assert seen.firing() == set()
    finally:
        server.shutdown()
        server.server_close()
