"""Placement: which exact GPUs of which nodes each pod of a gang gets."""
