"""Builds the libraries and the module _core with CMake; everything else is in pyproject.toml."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pybind11
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


class CMakeExtension(Extension):
    """What CMake builds: it installs `_core` and, beside it, the libraries.

    Those are the engine and, where TensorFlow is installed, its ops.
    """


class CMakeBuild(build_ext):
    """Configures, builds and installs the CMake component `python`.

    TF_RDMABATCH_BUILD_DIR names a build directory to share (the Makefile's). Without it each build
    starts from nothing: what an earlier one found may be gone with its isolated environment.
    """

    def build_extension(self, ext: Extension) -> None:
        """Build into `build_lib`, from where setuptools takes it."""
        shared = os.environ.get("TF_RDMABATCH_BUILD_DIR")
        with contextlib.ExitStack() as stack:
            build_dir = shared or stack.enter_context(tempfile.TemporaryDirectory())
            self._build(Path(build_dir).resolve(), ext)

    def _build(self, build_dir: Path, ext: Extension) -> None:
        cmake = shutil.which("cmake")
        if cmake is None:
            raise SystemExit("tf-rdmabatch: cmake was not found. On Debian: apt-get install cmake")
        options = [
            "-DRDMABATCH_PYTHON=ON",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
        ]
        if not (build_dir / "CMakeCache.txt").exists():
            options += ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
        # The extension's path is <prefix>/tf_rdmabatch/_core.<abi>.so.
        prefix = Path(self.get_ext_fullpath(ext.name)).resolve().parent.parent
        jobs = str(self.parallel or len(os.sched_getaffinity(0)))
        for command in (
            ["-S", str(ROOT), "-B", str(build_dir), *options],
            ["--build", str(build_dir), "--parallel", jobs, "--target", "package"],
            ["--install", str(build_dir), "--component", "python", "--prefix", str(prefix)],
        ):
            subprocess.run([cmake, *command], check=True)

    def copy_extensions_to_source(self) -> None:
        """Editable: setuptools copies the module, and the libraries belong beside it."""
        super().copy_extensions_to_source()
        for library in (Path(self.build_lib) / "tf_rdmabatch").glob("*.so"):
            if not library.name.startswith("_core"):
                shutil.copy2(library, ROOT / "tf_rdmabatch" / library.name)


setup(
    ext_modules=[CMakeExtension("tf_rdmabatch._core", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
