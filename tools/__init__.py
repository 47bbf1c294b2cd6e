"""Tools of the repository: clusters for demo and tests, generated files, the test runner."""
