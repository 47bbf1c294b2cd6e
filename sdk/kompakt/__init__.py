"""TrainingJobs from Python: submit, follow, read and delete them, from a script or a notebook."""
