"""How programs of kompakt in the cluster reach its API server."""
