"""`sooner doctor`: what this machine has, and what Sooner will use of it."""

from __future__ import annotations

import json
import os
import platform
from typing import Any

from sooner.cli import options


def doctor(as_json: options.AsJson = False) -> None:
    """Show machine, threads, kernels and the models found."""
    facts = gather()
    if as_json:
        print(json.dumps(facts))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")


def gather() -> dict[str, Any]:
    import torch

    import sooner
    from sooner.kernels import usable_cores
    from sooner.models.locate import installed_models

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "sooner": sooner.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {processor()}",
        "cores": os.cpu_count(),
        "threads": usable_cores(),
        "cuda devices": ", ".join(cuda) or "none",
        "kernels": kernels_line(),
        "models": ", ".join(f"{name} ({path})" for name, path in installed_models()) or "none; run `make install`",
    }


def kernels_line() -> str:
    from sooner.kernels import cpu

    missing = cpu.unavailable()
    return f"torch, which is slower ({missing})" if missing else f"cpu, {cpu.isa()}"


def processor() -> str:
    """The processor's own name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    except OSError:
        return platform.processor() or "unknown"
