"""The planner: which gang gets its places, when, and what is written about it.

loop: when each job is due. cycle: what the gangs of one planning cycle may see. scheduling_attempt: one gang's turn, from
the request to core to what is written. released_gangs: gangs that were released already. preemption: victims for a gang of
higher priority. pending_writes: the writes under way. planning_request, waiting_status: what is asked and what is reported, as
plain values.
"""
