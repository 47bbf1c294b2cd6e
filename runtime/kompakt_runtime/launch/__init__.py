"""Ways into a process: `kompakt run`, `kompakt-run`, `kompakt profile`, and their options."""
