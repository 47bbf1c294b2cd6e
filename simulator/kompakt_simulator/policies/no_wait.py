"""Dally without waiting: both timers are 0."""

from kompakt_core.policy.delay import no_wait as decide
from kompakt_simulator.policies.dally import DallyRule
from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.schedulers.leased import Leased

no_wait = Policy("no-wait", lambda _, setting: Leased(DallyRule(setting, decide), setting.lease_s))
