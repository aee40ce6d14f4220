"""One completion, streamed, timed and judged. No Locust, no pandas, nothing patched; alone it is used like
this:

    from client.clock import monotonic_ns
    from client.completion import Request, Target, complete
    from client.endpoints import request_body
    from client.reader import ConnectionPool
    pool = ConnectionPool(Target("http://127.0.0.1:8000", model="my-llm"))
    body = request_body("chat", "my-llm", "Why is the sea blue?", 64)
    request = Request(body=body, request_id="r-1")
    print(complete(pool, request, start_ns=monotonic_ns()).record)
"""
