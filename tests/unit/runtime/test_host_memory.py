"""Host memory that may be pinned, from files as the kernel writes them."""

import pytest

from kompakt_runtime.offload.host_memory import may_pin

MEMINFO = "MemTotal:       16384 kB\nMemFree:  100 kB\nMemAvailable:    8192 kB\n"
TWO = {"memory.max": "4194304", "memory.current": "3145728", "memory.stat": "anon 1\ninactive_file 1048576\n"}
ONE = {
    "memory/memory.limit_in_bytes": "2097152",
    "memory/memory.usage_in_bytes": "1048576",
    "memory/memory.stat": "inactive_file 5\ntotal_inactive_file 524288\n",
}


def tree(root, meminfo=MEMINFO, groups=()):
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(meminfo)
    for name, text in dict(groups).items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("groups", "ranks", "wanted"),
    [
        ({}, 1, 4 << 20),
        ({}, 4, 1 << 20),
        (TWO, 1, 1 << 20),
        ({**TWO, "memory.max": "max"}, 1, 4 << 20),
        ({**TWO, "memory.current": "9999999"}, 1, 0),
        (ONE, 1, (2097152 - 1048576 + 524288) // 2),
        ({**ONE, "memory/memory.limit_in_bytes": "9223372036854771712"}, 1, 4 << 20),
    ],
)
def test_half_of_what_machine_and_container_have_left(tmp_path, groups, ranks, wanted):
    assert may_pin(ranks, tree(tmp_path, groups=groups)) == wanted


def test_where_the_kernel_tells_nothing_none_is_pinned(tmp_path):
    assert may_pin(1, tmp_path) == 0


def test_on_this_machine_there_is_some():
    assert 0 < may_pin() < 1 << 50
