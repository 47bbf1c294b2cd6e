"""Cluster simulator over the policies of kompakt-core."""
