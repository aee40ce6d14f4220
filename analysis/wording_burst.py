"""The words about burstiness: readings, reasons, labels and the picture page, so that another language is
another table."""

from __future__ import annotations

UNMEASURED = {
    "too_long": "{scale} is longer than a quarter of the {window} that were measured",
    "too_many": "the span holds more than {most} windows of {scale}: look for a stray stamp",
    "finer_than_stamps": "the stamps come in steps of {step}; {scale} needs steps of a third of it at most",
    "uneven_steps": "{scale} is {steps} steps of the {step} stamps: some windows would hold one step more",
    "coarse_gaps": "the stamps come in steps of {step}, too coarse for gaps (if they are exact, requests "
    "come in salvos at those moments)",
}

MEASURE = {
    "cv": "CV of the gaps",
    "local_cv": "CV within {scale} s",
    "idc": "IDC, {scale} s",
    "allan_factor": "Allan factor, {scale} s",
    "peak_over_mean": "peak / mean, {scale} s",
    "count_acf": "counts per s, autocorrelation at lag {scale}",
    "gap_acf": "gaps, autocorrelation at lag {scale}",
    "goh_barabasi_b": "burstiness B",
    "memory": "memory M",
    "tokens": "{measure}, by {kind} tokens",
}
EXPLAINED = {
    "cv": "unevenness of the gaps: 0 even, 1 Poisson; blind to how long bursts last",
    "local_cv": "the same inside windows: what is left without slow changes",
    "idc": "variance / mean of the counts: 0 even, 1 Poisson; trends count too",
    "allan_factor": "the same from neighbouring windows: blind to slow trends",
    "peak_over_mean": "the fullest window over the average one",
    "count_acf": "does a full second follow a full second? 0 Poisson",
    "gap_acf": "does a long gap follow a long gap? 0 Poisson",
    "goh_barabasi_b": "-1 even, 0 Poisson, 1 all in one moment",
    "memory": "correlation of each gap with the next: 0 Poisson",
    "tokens": "each request weighing as many as its tokens",
}
KIND = {"input": "input", "output": "output", "total": "all"}

WORD = {
    "too_few": "Too few requests",
    "even": "Even",
    "calm": "Calmer than Poisson",
    "poisson": "Like Poisson",
    "trend": "A trend, not bursts",
    "trend_clumps": "A trend, and clumps",
    "clumps": "Bursty",
    "on_off": "Bursty",
    "waves": "Bursty",
}
SENTENCE = {
    "too_few": "{n} requests say nothing about burstiness: 20 are needed.",
    "even": "the gaps are nearly all alike (CV {cv}).",
    "even_counts": "counts over {scale} vary {idc} times as much as a Poisson stream's.",
    "calm": "the gaps vary less than a Poisson stream's (CV {cv}, Poisson 1).",
    "calm_counts": "counts over {scale} vary only {idc} times as much as a Poisson stream's.",
    "poisson": "requests come as from many independent users; counts over {scale} vary {idc} times as much "
    "as a Poisson stream's (95 %: {low} to {high}).",
    "trend": "the rate drifts (counts over {scale} vary {idc} times as much as a Poisson stream's), but from "
    "one {scale} to the next they differ only {allan} times as much: slow changes.",
    "trend_clumps": "counts over {scale} vary {idc} times as much as a Poisson stream's; the rate drifts "
    "slowly, and on top of it requests come in clumps (CV {cv}).",
    "trend_clumps_counts": "counts over {scale} vary {idc} times as much as a Poisson stream's; the rate "
    "drifts slowly, and on top of it neighbouring short windows differ too.",
    "clumps": "counts over {scale} vary {idc} times as much as a Poisson stream's; the burstiness lies in "
    "clumps within about {strongest}.",
    "on_off": "counts over {scale} vary {idc} times as much as a Poisson stream's; the burstiness lies in "
    "on-off pulses: silent {silent} of the time, on for about {on}, off for about {off} (medians).",
    "waves": "counts over {scale} vary {idc} times as much as a Poisson stream's; the burstiness lies in "
    "pulses above a lower level, strongest from one {strongest} to the next.",
    "peak": "The peak {scale} held {peak} times the mean.",
    "coarse": "The stamps come in steps of {step}: shorter scales and all measures of gaps are left out.",
    "tokens": "In {kind} tokens it is burstier still: IDC {idc} over {scale}.",
}
REPLAY = {
    "to_replay": "To replay: {options}",
    "near": "These options give IDC {made} over {scales}, CV {made_cv}; here {here}, CV {here_cv}.",
    "near_no_cv": "These options give IDC {made} over {scales}; here {here}.",
    "far": "Nothing that the shapes offer comes near; the closest:",
    "irregular": "Our pulses keep one beat; here their lengths vary.",
    "no_pulses": "They make no on-off pulses: here requests come for about {on} and then pause.",
    "gaps_unlike": "The gaps are unlike, by their CV: single gaps and pauses are not replayed.",
    "cut": "The span is longer than one run can be; the shape is squeezed into {duration}.",
}
PAGE = {
    "title": "Burstiness of {names}",
    "facts": "{n} requests in {window}, {rate} per second on average",
    "reading": "Reading",
    "over_time": "Over time",
    "scales": "Over scales",
    "gaps": "Gaps",
    "autocorrelation": "Autocorrelation",
    "figures": "Figures",
    "words": "Terms",
    "rate_caption": "Requests per second, counted over {width}.",
    "rate_caption_peaks": "Requests per second: of each {width} the fullest second and the mean.",
    "scales_caption": "How much counts vary, against a Poisson stream (1), over windows of each length. The "
    "grey band is where 95 % of Poisson streams with as many requests lie (its edge for the IDC).",
    "gaps_caption": "Share of the gaps that are longer than this. Above the dashed line on the right: more "
    "long pauses than a Poisson stream of this rate has.",
    "no_gaps": "No picture of the gaps: {why}.",
    "acf_caption": "Counts per second against those some seconds later. Outside the grey band: not chance.",
    "no_acf": "No picture: it takes 8 s of counts at least.",
    "axis_time": "since the first request",
    "axis_time_run": "since the start of the load",
    "axis_rate": "requests/s",
    "axis_scale": "length of the windows",
    "axis_dispersion": "times a Poisson stream's",
    "axis_gap": "gap",
    "axis_survival": "share of longer gaps",
    "axis_lag": "lag",
    "axis_acf": "autocorrelation",
    "line_idc": "IDC (all changes)",
    "line_allan": "Allan factor (changes to the next window)",
    "line_gaps": "gaps",
    "line_poisson": "Poisson stream",
    "line_peak": "fullest second",
    "line_mean": "mean",
    "line_rate": "requests/s",
    "head_measure": "measure",
    "head_says": "what it says",
    "table_caption": "In brackets: where 95 % of Poisson streams of the same size lie.",
    "unmeasured": "Left out: {what}: {why}.",
    "same": "The same as {name}.",
    "asked": "asked",
    "sent": "sent",
    "first_byte": "first byte",
}
LOG = {
    "unsorted": "the lines were not in order of time; sorted",
    "bad": "{bad} of {all} lines have no readable time in column {column} and were left out ({examples})",
    "empty": "{empty} rows have an empty time in column {column} and were left out",
    "outside": "{rows} probes and warm-up requests were left out",
    "assumed_seconds": "whole numbers without a unit, taken as seconds (--time-unit ms if they are not)",
    "assumed_ms": "whole numbers in steps of {step}, taken as milliseconds (--time-unit s if they are not)",
    "bad_tokens": "{bad} of {all} requests have no readable number in column {column}: counted as 0 tokens",
    "ties": "{share} of the requests have the same stamp as another",
    "hole": "one gap of {gap} is {share} of the span: two logs, or a stray stamp?",
    "windows": "the stamps are {step} apart without exception: is this a table of windows rather than a log "
    "of requests?",
    "read_as": "{column} read as {unit}",
    "no_name": "no line of the header",
}
