"""Which GPUs a job gets: one file per placement, one line each in the table.

A placement is a function of (cluster, number of GPUs). 1. It answers a set of exactly that many free GPUs, or None.
2. The same inputs give the same answer. 3. What it refuses it also refuses when fewer GPUs are free.
"""
