"""What docs say of the repository's structure, made from the code: `python -m tools.docs` writes it, `--check` compares."""
