"""The words of a capacity search, in one place so that another language can follow."""

CAPACITY_TEXT = {
    "begin": "A run of {duration} for each rate, {most} rates of each shape at most; {folder}",
    "now": "      {shape} at {rate} req/s runs for {duration} ...",
    "try": "{shape} at {rate} req/s",
    "tried": "{shape} at {rate} req/s: attainment {attainment} (at least {low}), TTFT p99 {p99}, "
    "{recovery}: {holds}",
    "recovery": "recovery {recovery}",
    "longer": "      at {rate} req/s a run takes {times} times as long, to have requests enough",
    "holds": "holds",
    "fails": "does not hold",
    "unknown": "says nothing ({why})",
    "capacity": "{shape}: {slo} holds for {share} of the requests up to {holds} req/s, no longer at {fails}",
    "at_least": "{shape}: {slo} holds for {share} of the requests at {holds} req/s, the highest rate tried",
    "none": "{shape}: {slo} holds for {share} of the requests at no rate tried; the lowest was {fails} req/s",
    "above": "{shape}: {slo} holds for {share} of the requests at {holds} req/s, and above that nothing was "
    "learned ({why})",
    "below": "{shape}: {slo} does not hold for {share} of the requests at {fails} req/s, and below that "
    "nothing was learned ({why})",
    "too_few": "{decided} requests are too few, {needed} could tell",
    "nothing": "{shape}: nothing was learned ({why})",
    "price": "Bursts cost {share} of the capacity: {uniform} req/s spread evenly, {bursty} req/s in "
    "the shape {shape}.",
    "no_price": "Bursts cost no capacity that could be seen: {uniform} req/s spread evenly, {bursty} req/s "
    "in the shape {shape}.",
    "title": "Capacity of {target}",
    "trials": "Rates tried",
    "head": "shape|req/s|attainment|at least (95 %)|TTFT p99|recovery, median|errors|holds|run",
    "curve": "Over the mean rate",
    "curve_caption": "SLO attainment with its 95 % lower bound, TTFT p99 and median recovery, over the mean "
    "rate. The dashed line is the share demanded. Runs that say nothing are only in the table.",
    "attainment_axis": "attainment",
    "ttft_axis": "TTFT p99",
    "no_p99": "n too small: a p99 takes 368 requests",
    "recovery_axis": "recovery",
    "rate_axis": "mean rate, req/s",
    "n_too_small": "n too small",
    "censored": "{time} ({censored} of {all} censored)",
    "not_seen": "not seen ({censored} of {all} censored)",
    "no_bursts": "no bursts",
    "how": "Each rate ran for {duration}, for longer where that would give too few requests to judge. The "
    "search goes up by half until a rate does not hold, then closes in to {precision}. A rate holds when the "
    "lower end of the attainment's 95 % interval is at least {share}.",
    "page": "page  {path}",
}
