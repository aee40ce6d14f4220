"""An LLM server to test against without a GPU: `python -m simserver --port 8000`.

It speaks the OpenAI API (chat, completions, responses) and queues, batches and slows down for the same
reasons as a real engine: one token budget per step shared by prompts and answers, a limit on running
sequences, KV-cache blocks with preemption, and a step time that grows with the tokens in the step. Text
is made up, time is not.

    engine.py     continuous batching, pure         policies.py  ways to schedule, to try against each other
    cost.py       how long a step takes             presets.py   by GPU and model
    kv_cache.py   blocks, shared and private        admission.py who is turned away at the door
    step_loop.py  the engine on the wall clock      virtual.py   the engine in virtual time
    asked.py      a body -> what is asked           script.py    what an answer will say
    endpoints.py  prompts and shapes by endpoint    answers.py   tokens -> bytes on the wire
    metrics.py    /metrics in vLLM's names          truth.py     the server's own record of each request
    serving.py    a request from bytes to end       app.py       HTTP: routes, keys, start, stop, crash
    faults.py     what goes wrong on purpose        options.py   the command's options

It imports none of the suite's other packages and never Locust.
"""

__version__ = "0.1.0"
