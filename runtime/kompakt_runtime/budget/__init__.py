"""A budget of memory: which layers stay unpacked, so that a step takes no more than the budget and as little time as possible."""
