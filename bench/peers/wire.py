"""How an engine in a process of its own is talked to: a JSON object a line, on its standard input and output.

Standard library only, because it runs in the environments of peers, too. Between two pieces of work the process waits
in ``readline``, which takes no processor time.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict

from bench.peers.workload import Phases, Workload


def serve(load: Callable[[], Callable[[Workload, int], Phases]]) -> None:
    """Answer pieces of work until standard input ends.

    Args:
        load: loads the engine; what it returns does a piece of work with prompts that a seed chooses.
    """
    # Engines print to standard output as they like, their children too: that goes where messages go.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    run = load()
    for line in sys.stdin:
        asked = json.loads(line)
        phases = run(Workload(**asked["workload"]), asked["seed"])
        print(json.dumps(asdict(phases)), file=answers)
