"""Jobs: specification, phases, and what the operator should do next."""
