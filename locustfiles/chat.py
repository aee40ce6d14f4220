"""Single-turn streaming chat: the default workload.

locust -f locustfiles/chat.py --headless --host http://127.0.0.1:8000 --model my-llm \\
    --shape pulse --rate 8 --arrivals poisson --seed 7 --run-time 100s --slo "ttft<1s,tpot<50ms"

`python -m loadgen` explains every option.
"""

from loadgen.users import ChatUser
from shapes.locust_shape import ChosenShape

__all__ = ["Chat", "ChosenShape"]


class Chat(ChatUser):
    """Synthetic prompts, different in every request, in the lengths that --input-tokens asks for."""
