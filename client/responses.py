"""What an event of the responses endpoint means: output comes in `...delta` events, all else in the last one.

The last event (or the whole answer, when it is not streamed) holds a response with its status and usage;
there is no `[DONE]`. https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from client.meaning import ANSWER, NOTHING, REASONING, Meaning, usage_of
from client.server_errors import ServerError, error_of

_ANSWER_DELTAS = frozenset(
    f"response.{part}.delta"
    for part in (
        "output_text",
        "refusal",
        "function_call_arguments",
        "custom_tool_call_input",
        "mcp_call_arguments",
        "code_interpreter_call_code",
    )
)
_REASONING_DELTAS = frozenset(
    f"response.{part}.delta" for part in ("reasoning_text", "reasoning_summary_text", "reasoning")
)
_LAST_EVENTS = frozenset(
    f"response.{status}" for status in ("completed", "incomplete", "failed", "cancelled")
)
_OTHER = Meaning(has_choices=False)
_FINISH_REASONS = {"max_output_tokens": "length", "completed": "stop", "cancelled": "aborted"}


def meaning_of(event: object, named_error: bool = False) -> Meaning | None:
    """The meaning of a parsed event or answer, as meaning.meaning_of has it for chat."""
    if not isinstance(event, dict):
        return None
    kind = event.get("type")
    if kind in _ANSWER_DELTAS:
        return ANSWER if event.get("delta") else NOTHING
    if kind in _REASONING_DELTAS:
        return REASONING if event.get("delta") else NOTHING
    if kind in _LAST_EVENTS:
        return _of_last(event.get("response"), str(kind).removeprefix("response."))
    error = error_of(event, named_error or kind == "error")
    if error is not None:
        return Meaning(error=error)
    if kind == "response.output_item.added":
        return ANSWER if _names_a_tool(event.get("item")) else NOTHING
    if event.get("object") == "response":
        return _of_whole(event)
    return _OTHER


def _of_last(response: object, status: str) -> Meaning:
    fields = response if isinstance(response, dict) else {}
    usage = usage_of(fields.get("usage"))
    told = error_of(fields)
    if status == "failed" or told is not None:
        error = told or ServerError("the response failed without a message")
        return Meaning(usage=usage, has_choices=False, error=error, ends=True)
    details = fields.get("incomplete_details")
    why = details.get("reason") if isinstance(details, dict) else None
    reason = why if isinstance(why, str) and why else status
    return Meaning(
        finish_reason=_FINISH_REASONS.get(reason, reason), usage=usage, has_choices=False, ends=True
    )


def _of_whole(response: dict[str, object]) -> Meaning:
    items = response.get("output")
    kinds = {
        item.get("type")
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, dict) and (item.get("content") or item.get("summary") or _names_a_tool(item))
    }
    last = _of_last(response, str(response.get("status") or "completed"))
    return Meaning(
        answer=bool(kinds - {"reasoning"}),
        reasoning="reasoning" in kinds,
        finish_reason=last.finish_reason,
        usage=last.usage,
        error=last.error,
        ends=True,
    )


def _names_a_tool(item: object) -> bool:
    return isinstance(item, dict) and bool(item.get("name")) and str(item.get("type", "")).endswith("_call")
