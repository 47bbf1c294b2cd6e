"""All policies by name."""

from collections.abc import Mapping

from kompakt_simulator.policies.dally import dally
from kompakt_simulator.policies.fifo import fifo
from kompakt_simulator.policies.fifo_skip import fifo_skip
from kompakt_simulator.policies.gandiva import gandiva
from kompakt_simulator.policies.kompakt import kompakt
from kompakt_simulator.policies.las import las
from kompakt_simulator.policies.never_relax import never_relax
from kompakt_simulator.policies.no_wait import no_wait
from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.policies.sjf import sjf
from kompakt_simulator.policies.srtf import srtf
from kompakt_simulator.policies.tiresias import tiresias

_ALL = (fifo, fifo_skip, sjf, srtf, las, tiresias, gandiva, dally, no_wait, never_relax, kompakt)
POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in _ALL}
