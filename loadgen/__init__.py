"""Locust's side of a run: from the plan to the record. `loadgen.users` is what a locustfile imports."""
