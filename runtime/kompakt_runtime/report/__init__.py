"""What is said of a run: the first line, tables, and a comparison with plain training."""
