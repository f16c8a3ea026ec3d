"""`cascade worker`: runs simulators for queued sims and reports everything about them.

warden    a small process of its own: the simulator's parent, which outlives the worker
process   the worker's handle on a warden: start, find again, stop
spool     the folder of one sim, from which a killed worker is taken up again
lines     bytes of the log as chunks of lines
heart     heartbeats, from a thread of their own
relay     the log to the server, from a thread of its own
story     what the log says of the run, and whether that was a success
outputs   the files the simulator wrote
command   placeholders and paths of the simulator's command
job       one sim, from start to final heartbeat
worker    claims, several jobs at once, signals
view      what people see meanwhile
"""
