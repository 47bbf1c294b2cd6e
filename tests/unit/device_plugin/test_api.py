"""How the API server is found, and what the plugin's process loads."""

import pytest

from kompakt_client.transport import connect
from kompakt_core.errors import InvalidInput


@pytest.mark.parametrize("content", [None, "", "{", "a: [", "kind: Config\nclusters: 3"])
def test_without_a_usable_way_there_is_a_sentence(tmp_path, monkeypatch, content):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InvalidInput, match="not inside a cluster"):
        connect(None)
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InvalidInput, match=f"--kubeconfig {file}"):
        connect(str(file))


def test_the_plugin_loads_the_drivers_constants_only_where_there_is_a_driver():
    """They would take megabytes of its memory."""
    import subprocess
    import sys

    code = "import sys, kompakt_device_plugin.main; print('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
