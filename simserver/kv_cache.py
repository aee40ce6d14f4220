"""The pool of KV-cache blocks: 16 tokens each, shared by requests whose prompts begin alike.

    unused   holds nothing
    private  held by one request: answers, the prompt's last part, whatever has no hash
    shared   a whole block of a prompt, known by its hash and held by one request or several
    idle     shared once, held by nobody now: its content is good until the block is needed

A block that is needed comes from the unused ones, then from the idle ones, the one longest idle first. This
is vLLM's prefix cache with one thing left out: blocks of generated tokens are not kept for a later prompt.
"""

from __future__ import annotations

from simserver.request import BLOCK_TOKENS, Request, blocks_for


class KvCache:
    """Who holds how many blocks. `take` and `attach` are the only ways in, `release` the only way out."""

    __slots__ = ("_holders", "_idle", "_unused", "blocks")

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._unused = blocks
        self._holders: dict[int, int] = {}
        self._idle: dict[int, None] = {}

    @property
    def free(self) -> int:
        """Blocks that can be had: unused and idle ones."""
        return self._unused + len(self._idle)

    @property
    def used_ratio(self) -> float:
        """Share of the blocks that a request holds."""
        return 1 - self.free / self.blocks

    def take(self, request: Request, tokens: int) -> bool:
        """Take the blocks for `tokens` tokens in all; False (and none taken) when too few are free."""
        more = blocks_for(tokens) - request.blocks
        if more > 0:
            if more > self.free:
                return False
            self._unused -= more
            while self._unused < 0:
                del self._idle[next(iter(self._idle))]
                self._unused += 1
            request.blocks += more
        if request.block_hashes and request.computed_tokens < request.prompt_tokens:
            self._share(request, tokens)
        return True

    def prefix_blocks(self, request: Request) -> int:
        """How many leading blocks of its prompt are there. One token at least is always left to compute."""
        most = min(len(request.block_hashes), (request.known_tokens - 1) // BLOCK_TOKENS)
        for index in range(most):
            block = request.block_hashes[index]
            if block not in self._holders and block not in self._idle:
                return index
        return most

    def fits(self, request: Request, prefix_blocks: int) -> bool:
        """Whether all its known tokens fit at once, when the first `prefix_blocks` blocks are there."""
        woken = sum(block in self._idle for block in request.block_hashes[:prefix_blocks])
        return blocks_for(request.known_tokens) - prefix_blocks <= self.free - woken

    def attach(self, request: Request, prefix_blocks: int) -> None:
        """Let a request that holds nothing share the blocks that its prompt begins with."""
        for block in request.block_hashes[:prefix_blocks]:
            self._idle.pop(block, None)
            self._holders[block] = self._holders.get(block, 0) + 1
            request.shared_blocks.append(block)
        request.blocks = prefix_blocks
        request.computed_tokens = prefix_blocks * BLOCK_TOKENS

    def release(self, request: Request) -> None:
        """Give back all that a request holds; the end of a prompt is forgotten before its beginning."""
        self._unused += request.blocks - len(request.shared_blocks)
        request.blocks = 0
        for block in reversed(request.shared_blocks):
            left = self._holders[block] - 1
            if left:
                self._holders[block] = left
            else:
                del self._holders[block]
                self._idle[block] = None
        request.shared_blocks.clear()

    def _share(self, request: Request, tokens: int) -> None:
        """Make known the prompt blocks that this step completes; a twin of a known one stays private."""
        first = request.computed_tokens // BLOCK_TOKENS
        for block in request.block_hashes[first : tokens // BLOCK_TOKENS]:
            if block not in self._holders and block not in self._idle:
                self._holders[block] = 1
                request.shared_blocks.append(block)
