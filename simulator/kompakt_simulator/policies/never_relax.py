"""Dally that never relaxes: both timers never run out."""

from kompakt_core.policy.delay import never_relax as decide
from kompakt_simulator.policies.dally import DallyRule
from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.schedulers.leased import Leased

never_relax = Policy("never-relax", lambda _, setting: Leased(DallyRule(setting, decide), setting.lease_s))
