"""The messages between master and workers, by name; Locust carries them (msgpack over ZMQ, or a call in one
process).

master ─► worker   CLOCK          {number}                     "what time is it, and who are you?"
                   ASSIGNMENT     fields of Assignment         what this worker will do
                   REFUSED        {why}                        this master does not want you: leave
                   SLICE          {run_id, number, packed, sha256, last}
                   START          {run_id, start_ns}           the start moment in the worker's clock
                   STOP           {run_id, reason}             send no more; drain
                   ACKNOWLEDGED   {run_id, batch}              records that are safe at the master
worker ─► master   CLOCK_READ     {number, monotonic_ns, busy_with, identity}
                   READY          {run_id, note}               armed; waits for the start moment
                   RECORDS        {run_id, batch, rows, gaps, fired, in_flight, seconds}
                   DONE           {run_id, left, seconds, cpu_peak_ratio, cpu_mean_ratio,
                                   loop_lag_p99_s, loop_lag_max_s}

`seconds`: how busy the worker was in each second that ended since the last message (loadgen.watch.Second).
"""

from __future__ import annotations

CLOCK = "load_clock"
ASSIGNMENT = "load_assignment"
REFUSED = "load_refused"
SLICE = "load_slice"
START = "load_start"
STOP = "load_stop"
ACKNOWLEDGED = "load_acknowledged"

CLOCK_READ = "load_clock_read"
READY = "load_ready"
RECORDS = "load_records"
DONE = "load_done"
