"""TrainingJobs from Python: submit, follow, read and delete them, from a script or a notebook.

from kompakt import TrainingJob

job = TrainingJob("digits", image="registry.example/train:1", command=["torchrun", "/app/train.py"], workers=2, gpus=2)
job.submit()
for line in job.logs(follow=True):
    print(line)
print(job.wait()["phase"])
"""

from kompakt.errors import JobExists, JobFailed, JobNotFound, JobRefused, NoAnswer
from kompakt.job import TrainingJob
from kompakt.job_logs import Line
from kompakt.models.spec import ActivationCompressionDict, TrainingJobSpecDict
from kompakt.models.status import CompressionStatusDict, TrainingJobStatusDict
from kompakt_core.errors import InvalidInput, KompaktError

__all__ = [
    "ActivationCompressionDict",
    "CompressionStatusDict",
    "InvalidInput",
    "JobExists",
    "JobFailed",
    "JobNotFound",
    "JobRefused",
    "KompaktError",
    "Line",
    "NoAnswer",
    "TrainingJob",
    "TrainingJobSpecDict",
    "TrainingJobStatusDict",
]
