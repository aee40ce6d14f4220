"""The messages between master and workers, by name; Locust carries them (msgpack over ZMQ, or a call in one
process).

master ─► worker   CLOCK          {number}                     "what time is it at yours?"
                   ASSIGNMENT     fields of Assignment         what this worker will do
                   SLICE          {run_id, number, packed, sha256, last}
                   START          {run_id, start_ns}           the start moment in the worker's clock
                   STOP           {run_id, reason}             send no more; drain
                   ACKNOWLEDGED   {run_id, batch}              records that are safe at the master
worker ─► master   CLOCK_READ     {number, monotonic_ns, boot_id}
                   READY          {run_id, host, pid, versions}
                   RECORDS        {run_id, batch, rows, gaps, fired, in_flight}
                   DONE           {run_id, worker's own error}
"""

from __future__ import annotations

CLOCK = "load_clock"
ASSIGNMENT = "load_assignment"
SLICE = "load_slice"
START = "load_start"
STOP = "load_stop"
ACKNOWLEDGED = "load_acknowledged"

CLOCK_READ = "load_clock_read"
READY = "load_ready"
RECORDS = "load_records"
DONE = "load_done"

TO_WORKER = (CLOCK, ASSIGNMENT, SLICE, START, STOP, ACKNOWLEDGED)
TO_MASTER = (CLOCK_READ, READY, RECORDS, DONE)
