"""Azure OpenAI: the deployment stands in the path, the API's version in the query, the key in `api-key`.

    https://NAME.openai.azure.com, model gpt-x, --api-version 2024-10-21
      -> /openai/deployments/gpt-x/chat/completions?api-version=2024-10-21

This is the rule that the openai SDK's AzureOpenAI follows (openai/lib/azure.py). An address whose path ends
in a version, such as Azure's newer /openai/v1, speaks as any other server: only its query is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

VERSION_FIELD = "api-version"
_RESOURCE = re.compile(r"(?P<before>.*?)(?:/openai(?:/deployments/(?P<deployment>[^/]+))?)?")
_BY_DEPLOYMENT = frozenset({"/chat/completions", "/completions"})


@dataclass(frozen=True)
class AzureResource:
    """A resource (or a gateway that stands for one): the path before /openai, and the deployment where the
    address names one; else it is the model's name."""

    before: str
    deployment: str | None

    def path_to(self, endpoint: str, model: str) -> str:
        """The path of an endpoint such as /chat/completions; those without a deployment stand beside."""
        if endpoint not in _BY_DEPLOYMENT:
            return f"{self.before}/openai{endpoint}"
        return f"{self.before}/openai/deployments/{self.deployment or quote(model, safe='')}{endpoint}"


def azure_resource(path: str) -> AzureResource:
    """What the path of an address says, its endpoint taken away: "", /openai or /openai/deployments/NAME."""
    found = _RESOURCE.fullmatch(path)
    assert found is not None
    return AzureResource(found["before"], found["deployment"])
