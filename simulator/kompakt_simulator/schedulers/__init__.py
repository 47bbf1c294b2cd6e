"""How jobs are queued, stopped and started: families of policies that differ in a key or a rule."""
