"""The error model: how large an error each saved operand may have, from what it does to gradients."""
