"""The native kernels beside the reference: the same GGUF file, requests and threads, in alternating rounds."""

import argparse

import torch

from bench.report import report
from bench.serving import DTYPE, Server, first_token, make_limits, make_request, throughput
from cutaway.config import DEFAULT_MODEL, load_settings
from cutaway.executor.model import Model
from cutaway.executor.torch_model import TorchModel
from cutaway.hub.resolve import ensure
from cutaway.hub.store import ModelStore
from cutaway.kernels import native
from cutaway.machine import read_cpu
from cutaway.models.build import load_decoder
from cutaway.models.native import load_native
from cutaway.weights.checkpoint import open_checkpoint

ROUNDS = 5
BATCH_SIZES = (1, 8, 32)
PROMPT_LENGTHS = (512, 4096)


def prefill(model: Model, num_prompt: int, name: str) -> float:
    """Prompt tokens a second."""
    server = Server(model, make_limits(model, num_prompt + 64, 1))
    return num_prompt / first_token(server, make_request(name, num_prompt - 8, 1))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    model_name = parser.parse_args().model
    settings = load_settings()
    checkpoint = open_checkpoint(ensure(model_name, ModelStore(settings.cache_dir, settings.index_url)).path)
    num_threads = read_cpu().num_usable_cores
    models: dict[str, Model] = {
        "reference": TorchModel(load_decoder(checkpoint, DTYPE)),
        "native": load_native(checkpoint, native.instruction_sets()[0], num_threads),
    }
    decode: dict[tuple[str, int], list[float]] = {(name, size): [] for size in BATCH_SIZES for name in models}
    read: dict[tuple[str, int], list[float]] = {(name, size): [] for size in PROMPT_LENGTHS for name in models}
    for index in range(ROUNDS):
        for (name, size), values in (*decode.items(), *read.items()):
            torch.set_num_threads(num_threads if name == "reference" else 1)  # the native kernels have their own
            if (name, size) in decode:
                values.append(throughput(models[name], size))
            else:
                values.append(prefill(models[name], size, f"{index} {name}"))
    facts = {"model": model_name, "threads": num_threads}
    for (name, size), values in decode.items():
        report("decode", "tokens/s", values, kernels=name, requests=size, context="128 to 192", **facts)
    for (name, size), values in read.items():
        report("prefill", "tokens/s", values, kernels=name, prompt=size, **facts)


if __name__ == "__main__":
    main()
