"""Saved tensors in host memory: which, from when on, and when they come back."""
