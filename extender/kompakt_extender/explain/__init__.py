"""The explain API: read-only answers for people about nodes, pods, jobs and requests that nobody has made yet."""
