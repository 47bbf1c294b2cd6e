"""For all tests: generated examples get no time limit of their own. On a busy machine a limit per example fails tests by chance;
pytest's own timeout still ends one that hangs.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
