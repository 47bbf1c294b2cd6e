"""A cluster in virtual time: traces of jobs, policies and placements side by side, tables of what came out."""
