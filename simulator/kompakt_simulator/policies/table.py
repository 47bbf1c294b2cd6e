"""All policies by name."""

from collections.abc import Mapping

from kompakt_simulator.policies.fifo import fifo
from kompakt_simulator.policies.fifo_skip import fifo_skip
from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.policies.sjf import sjf
from kompakt_simulator.policies.srtf import srtf

POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in (fifo, fifo_skip, sjf, srtf)}
