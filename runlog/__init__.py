"""The run folder: the types and files that pass between running a load and analysing it. Stdlib only."""
