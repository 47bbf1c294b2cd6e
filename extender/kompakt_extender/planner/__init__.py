"""The planner: which gang gets its places, when, and what is written about it.

loop: when each job is due. rounds: what the gangs of one round may see. thinking: one gang's question to core, and what
follows from the answer. standing: gangs that were released already. preempting: gangs that end for others. writes: the writes
under way. question, waiting: what is asked and what is said, as plain values.
"""
