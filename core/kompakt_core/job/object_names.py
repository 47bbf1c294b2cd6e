"""Names of the objects of one attempt of a job."""


def pod_name(job: str, role: str, index: int, attempt: int) -> str:
    """`index` counts within the role."""
    return f"{job}-{role}-{index}-a{attempt}"


def service_name(job: str, attempt: int) -> str:
    return f"{job}-a{attempt}"
