"""Generates crds/: the schemas of TrainingJob and GPUTopology. `python -m tools.crd` writes them."""
