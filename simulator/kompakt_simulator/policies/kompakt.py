"""Our own: least service first, waiting for a better level only while that can pay, few jobs stopped and for good places only."""

from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.schedulers.patient import Patient

kompakt = Policy("kompakt", lambda _place, _setting: Patient(), uses_more=True)
