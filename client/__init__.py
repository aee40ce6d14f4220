"""One completion, streamed, timed and judged. No Locust, no pandas, nothing patched; alone it is used like
this:

    from client.clock import monotonic_ns
    from client.completion import Request, Target, complete
    from client.dialects import chat_body
    from client.reader import ConnectionPool
    pool = ConnectionPool(Target("http://127.0.0.1:8000", model="my-llm"))
    request = Request(body=chat_body("my-llm", "Why is the sea blue?", max_tokens=64), request_id="r-1")
    print(complete(pool, request, start_ns=monotonic_ns()).record)
"""
