"""The patches of Locust rest on upstream code; when that changes, a person must look again.

Locust patches sockets when it is imported, so what needs it runs in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

LOOK = """
import json, time
from loadgen import locust_patches
found = {name: locust_patches.upstream_digest(f) for name, f in locust_patches.upstream_functions().items()}
from locust import argument_parser
before = argument_parser.default_args_dict()
built = []
original = argument_parser.setup_parser_arguments
argument_parser.setup_parser_arguments = lambda parser: (built.append(1), original(parser))[1]
argument_parser.default_args_dict()
stock = len(built)
locust_patches.apply()
locust_patches.apply()
after = [argument_parser.default_args_dict() for _ in range(5)]
print(json.dumps({
    "found": found, "expected": locust_patches.EXPECTED_DIGESTS,
    "stock": stock, "patched": len(built) - stock,
    "same": all(answer == before for answer in after),
}))
"""


def test_the_patched_lines_are_the_ones_the_patch_was_written_for_and_it_works() -> None:
    run = subprocess.run([sys.executable, "-c", LOOK], cwd=REPOSITORY, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    assert seen["found"] == seen["expected"], "Locust changed under a patch: loadgen/locust_patches.py"
    assert seen["stock"] == 1  # one parser for one question
    assert seen["patched"] == 1  # one parser for five questions
    assert seen["same"]
