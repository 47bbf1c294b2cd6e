"""Device plugin: reports the link graph, hands out exactly the chosen GPUs."""
