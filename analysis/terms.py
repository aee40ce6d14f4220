"""The words of the report and what they mean, in one table, so that another language is another table."""

from __future__ import annotations

TERMS: tuple[tuple[str, str], ...] = (
    (
        "offered load",
        "what was asked of the server, whether or not it kept up; throughput is what it finished",
    ),
    (
        "burst, recovery, quiet",
        "the phases of a run: inside a planned burst; from its end until TTFT is back to "
        "normal, or until the next burst; everything else. A request belongs to the phase in which it "
        "was due",
    ),
    (
        "recovery time",
        "from a burst's planned end to the first 2 s window, by arrival, from which on the median TTFT "
        "stays within max(baseline + 0.2 s, 1.5 × baseline) for 10 s; censored (> x) when that was not seen",
    ),
    (
        "probes",
        "small requests at a steady rate outside the load; where the load is silent they show when the "
        "server is back",
    ),
    (
        "open loop, closed loop",
        "open: requests go out at their moments, whatever the server does; closed: a number of users, each "
        "with one request at a time, so a slow server slows the load",
    ),
    (
        "SLO attainment",
        "met / decided; decided = succeeded + failed + rejected + not sent through our own fault",
    ),
    (
        "goodput",
        "requests per second of the measured window that met the SLO",
    ),
    (
        "failed, rejected, cut off",
        "failed: no whole answer; rejected: refused by the server (such as 429 or 503); cut "
        "off: still in flight when the run's own limit ended them",
    ),
    (
        "CV",
        "standard deviation of the gaps between requests over their mean: 0 even, 1 Poisson, above 1 bursty",
    ),
    (
        "IDC(w)",
        "variance over mean of the counts in windows of w seconds: 1 Poisson; it sees how long bursts last",
    ),
    (
        "Allan factor(w)",
        "like IDC(w) from the differences of neighbouring windows: a slow trend, which raises the IDC, "
        "leaves it at 1",
    ),
    (
        "peak / mean",
        "the fullest window over the average one",
    ),
)
