"""The planner: which gang gets its places, when, and what is written about it. docs/planner.md has the tables.

loop: when each job is due, and the steps of a cycle: reconciliation, then cycle (snapshot), nomination, planning_queue (order),
decision, validation, commit; scheduling_attempt does the last three for one gang. transitions: the phases of a gang.
known_rejections: what other gangs of the cycle were told. unschedulable: gangs that rest until their answer could be another one.
released_gangs: gangs that were released already. preemption, plain_pods: victims for a gang of higher priority.
pending_writes: the writes under way. planning_request, waiting_status: what is asked and what is reported, as plain values.
"""
