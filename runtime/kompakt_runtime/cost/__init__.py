"""What compression costs in time, how much memory a training takes, and the largest batch that fits."""
