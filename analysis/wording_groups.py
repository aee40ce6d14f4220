"""The words of the report's parts about groups, tenants and the flow of tokens."""

GROUPS_TEXT = {
    "title": "Groups",
    "name": "By name",
    "tenant": "By tenant",
    "input_tokens": "By prompt length, tokens",
    "head": "group|requests|failed or rejected|TTFT p50|TTFT p95|TTFT p99|TPOT p50|TPOT p95|SLO attainment",
    "tenants": "Who hurts whom",
    "tenants_note": "A tenant's bursts are found in its own arrivals and hurt until 10 s after their end.",
    "tenants_head": "tenant|requests|bursts|TTFT p95, calm|others burst|own burst|attainment, calm|"
    "others burst|own burst",
    "flow": "Flow of tokens",
    "flow_head": "of|requests|token deadlines|missed|requests that flowed",
    "flow_caption": "Token deadlines missed, and requests that flowed, by phase of arrival.",
    "flow_note": "A token is due {first} after sending and then every {deadline}, what came early being "
    "carried on; a request flowed when it missed at most one deadline in ten.",
    "flow_first": "{limit}",
    "flow_no_first": "with the first one",
    "gaps": "Chunk gaps of all answers: p50 {p50}, p99 {p99}, longest {longest}, over {n} gaps.{note}",
    "gaps_note": " {note}.",
    "interval": "{low} – {high}",
}
