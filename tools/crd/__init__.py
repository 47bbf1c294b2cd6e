"""Generates crds/: the schemas of TrainingJob, GPUTopology and Limits. `python -m tools.crd` writes them."""
