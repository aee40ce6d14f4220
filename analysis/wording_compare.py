"""The words of a comparison of runs, in one place so that another language can follow."""

UNLIKE_TEXT = {
    "refused": "{base} and {candidate} cannot be compared [{key}]: {what}",
    "allow": "A difference would not be the server's alone. Repeat the run that is unlike, or compare "
    "all the same with --allow {keys}: the page then says so.",
    "verdict": "{name} is {verdict} ({why})",
    "amended": "the plan of {name} was changed while it ran",
    "load": "one load is {base}, the other {candidate}",
    "schedule": "they did not run the same schedule ({what})",
    "schedule_hash": "the hashes of schedule.csv differ",
    "one_setting": "{what} is {base!r} against {candidate!r}",
    "lengths": "mean {side} tokens are {base} against {candidate}, more than 5 % apart",
    "cached": "cached prompt tokens are {base} against {candidate}, more than 1 point apart",
}

COMPARED_LABEL = {
    "ttft_p50": "TTFT p50 in a burst",
    "ttft_p90": "TTFT p90 in a burst",
    "tpot_p50": "TPOT p50 in a burst",
    "e2e_p90": "E2E p90 in a burst",
    "attainment": "SLO attainment, burst and aftermath",
    "success": "requests that succeeded",
    "recovery": "recovery after a burst",
}
STRETCH_LABEL = {
    "ttft_p50": "TTFT p50",
    "ttft_p90": "TTFT p90",
    "tpot_p50": "TPOT p50",
    "e2e_p90": "E2E p90",
    "attainment": "SLO attainment",
    "success": "requests that succeeded",
}

FINDING_TEXT = {
    "better": "better",
    "worse": "worse",
    "small": "significant, but small",
    "equal": "no difference",
    "not significant": "not significant",
    "n too small": "n too small",
}

COMPARE_TEXT = {
    "title": "{candidate} against {base}",
    "page_title": "Comparison with {base}",
    "better": "{candidate} is better than {base}: {figures}.",
    "worse": "{candidate} is worse than {base}: {figures}.",
    "mixed": "{candidate} against {base}: {better} better; {worse} worse.",
    "small": "{candidate} and {base} differ only a little: {figures}.",
    "none": "No difference between {candidate} and {base} can be told from chance over {n} {by}.",
    "too_few": "{n} {by} are too few to tell {candidate} from {base}; at least {more} more are needed.",
    "equal": "{candidate} and {base} gave the same figures in every one of {n} {by}.",
    "figure": "{label} {shift} ({base} → {candidate})",
    "burst": "bursts",
    "stretch": "stretches of 20 s",
    "allowed": "Compared although {what} [{key}].",
    "how_arrival": "Both runs met the same requests at the same moments. Each {unit} gives one difference, "
    "{candidate} minus {base}; the shift is their Hodges-Lehmann estimate, p comes from flipping their signs "
    "(exact, on ranks) and is corrected by Holm for {tests} tests.",
    "how_block": "Users of a closed loop send when they can, so only the {unit} pairs the runs, not the "
    "request; the shift is the Hodges-Lehmann estimate of the differences, p comes from flipping their "
    "signs (exact, on ranks) and is corrected by Holm for {tests} tests.",
    "unit_burst": "burst",
    "unit_stretch": "stretch of 20 s",
    "head": "figure (median over {by})|{base}|{candidate}|shift|95 % interval|p (Holm)|finding",
    "no_interval": "needs 6",
    "more_needed": "{finding}; {more} more needed",
    "more_estimated": "{finding}; about {more} more would tell a shift of this size",
    "failures": "failures",
    "points": "{points} points",
    "per_block": "Difference of each {unit}",
    "per_block_how": "One dot a {unit}: candidate minus base. The line is the shift, the band its "
    "95 % interval.",
    "per_block_caption": "{label}: below 0 is {way}",
    "way_lower": "better",
    "way_higher": "worse",
    "number_axis": "{unit} number",
    "ecdf": "TTFT of all requests",
    "ecdf_caption": "Share of the requests that had their first token within so long; failures never do, so "
    "the curve of a run with failures ends below 100 %.",
    "ecdf_axis": "TTFT",
    "share_axis": "share of requests",
    "over_time": "TTFT over time",
    "over_time_caption": "Bursts shaded. Median TTFT of the requests due in each 2 s window, "
    "failures left out.",
    "time_axis": "time, s",
    "whole": "Whole runs",
    "whole_caption": "Not tested: figures of all requests of each run.",
    "figures": "What differs",
    "written": "comparison  {path}",
}
