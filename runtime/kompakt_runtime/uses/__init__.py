"""What the backward pass reads of a saved tensor, by the autograd node that saved it and the slot it saved it in."""
