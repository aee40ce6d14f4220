"""The report's labels and sentences about intervals, groups and single bursts; a part of wording.TEXT."""

from __future__ import annotations

STATISTICS_TEXT: dict[str, str] = {
    # intervals that count bursts
    "by_burst_burst": "In bursts, counting bursts instead of requests: {low} – {high} (95 %, {bursts} "
    "bursts, design effect {effect}).",
    "by_burst_whole": "Over the whole run, counting bursts with what follows them: {low} – {high} (95 %, "
    "{bursts} bursts, design effect {effect}).",
    "by_burst_none": "No interval that counts bursts: {why}.",
    # bursts that no plan named
    "one_found_burst": "The burst found in the arrivals (none was planned)",
    "each_found_burst": "Each of {n} bursts found in the arrivals (none was planned)",
    "tile_by_burst": "; 95 % over bursts {low} – {high}",
}
