"""Inside what torch.compile made: which saved values are packed, and the operators that do it in the compiled graphs."""
