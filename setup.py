"""Builds the CPU kernels, one shared library without any Python or torch headers, with the system's C++ compiler.

`python setup.py build_ext --inplace` builds it in the source tree. Without a working compiler the package installs all
the same, and `sooner doctor` says why the kernels are missing.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

NATIVE = Path("src/sooner/kernels/cpu/native")
FLAGS = ["-O3", "-std=c++17", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wno-psabi"]
# Each operation rounds as it is written, so that all instruction sets and compilers give the same bits.
FLAGS += ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
COMMON: dict[str, list[str]] = {"api": [], "pool": [], "pack": [], "isa_generic": ["-O2"], "dots_generic": ["-O2"]}
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c"]
AVX_VNNI = "-mavxvnni"  # compilers before 2021 lack it: that source then makes what dots_avx2 does
BY_MACHINE: dict[str, dict[str, list[str]]] = {
    "x86_64": {
        "isa_avx2": AVX2,
        "dots_avx2": AVX2,
        "dots_avxvnni": [*AVX2, AVX_VNNI],
        "isa_avx512": AVX512,
        "dots_avx512vnni": [*AVX512, "-mavx512vnni"],
    },
    "aarch64": {"isa_neon": [], "dots_neon": [], "dots_neondot": ["-march=armv8.2-a+dotprod"]},
}
MACHINES = {"AMD64": "x86_64", "arm64": "aarch64"}


class BuildKernels(build_ext):
    """Compiles each source with its own flags (SOONER_CXXFLAGS adds more, for sanitizers) and links one library."""

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + ".so"

    def get_source_files(self) -> list[str]:
        return [str(path) for path in sorted(NATIVE.iterdir())]

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        objects = Path(self.build_temp)
        objects.mkdir(parents=True, exist_ok=True)
        machine = MACHINES.get(platform.machine(), platform.machine())
        sources = COMMON | BY_MACHINE.get(machine, {})
        compiler = shlex.split(os.environ.get("CXX", "c++"))
        extra = shlex.split(os.environ.get("SOONER_CXXFLAGS", ""))
        if not _accepts(compiler, AVX_VNNI):
            sources = {name: [flag for flag in flags if flag != AVX_VNNI] for name, flags in sources.items()}
        compile_ = [
            [*compiler, *FLAGS, *flags, *extra, "-c", str(NATIVE / f"{name}.cpp"), "-o", str(objects / f"{name}.o")]
            for name, flags in sources.items()
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_run, compile_))
        _run([*compiler, "-shared", "-pthread", *extra, *(c[-1] for c in compile_), "-o", str(target)])


def _accepts(compiler: list[str], flag: str) -> bool:
    try:
        command = [*compiler, flag, "-fsyntax-only", "-x", "c++", os.devnull]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False  # no compiler, which the build itself will tell


def _run(command: list[str]) -> None:
    print(shlex.join(command), flush=True)
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CompileError(f"the CPU kernels were not built: {error}") from error


setup(
    ext_modules=[Extension("sooner.kernels.cpu._kernels", sources=[], optional=True)],
    cmdclass={"build_ext": BuildKernels},
    package_data={"sooner.kernels.cpu": ["native/*"]},
)
