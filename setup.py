"""Packaging of elmo_plugin. `make demo`, `make test` and requirements*.txt hold the exact versions."""

import copy
import platform
import re
from glob import glob
from pathlib import Path
from typing import Dict, List

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

PACKAGE_SOURCE = (Path(__file__).parent / "elmo_plugin" / "__init__.py").read_text(encoding="utf-8")

# The fast kernel of frozen biLMs, compiled once for each vector unit; simd/library.py loads the fastest that
# the processor has. Without a compiler, or with one that does not know a unit, the package installs all the
# same and runs slower: `kernel` in its README.
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"]
X86_UNITS = {
    "avx512_bf16": [*AVX512, "-mavx512vnni", "-mavx512bf16"],
    "avx512_vnni": [*AVX512, "-mavx512vnni"],
    "avx512": AVX512,
    "avx2": ["-mavx2", "-mfma"],
}
ARM_UNITS: Dict[str, List[str]] = {"neon_dotprod": ["-march=armv8.2-a+dotprod"], "neon": []}
UNITS_OF_MACHINES = {
    "x86_64": X86_UNITS,
    "AMD64": X86_UNITS,
    "aarch64": ARM_UNITS,
    "arm64": ARM_UNITS,
}


COMPILER_FLAGS = [
    *("-O3", "-std=c++17", "-pthread", "-Wall", "-Wextra"),
    # GCC's own headers of intrinsics, before GCC 13; and vectors as arguments, which are all inlined.
    *("-Wno-uninitialized", "-Wno-maybe-uninitialized", "-Wno-psabi"),
    # Debugging information is several times as large as the code.
    "-g0",
    # A row has the same result, to the bit, whichever rows it is multiplied with.
    "-ffp-contract=off",
]


def vector_unit_extension(unit: str, flags: List[str]) -> Extension:
    return Extension(
        f"elmo_plugin.bilm.simd._{unit}",
        ["elmo_plugin/bilm/simd/simd.cpp"],
        depends=glob("elmo_plugin/bilm/simd/*.h"),
        language="c++",
        extra_compile_args=[*COMPILER_FLAGS, *flags],
        optional=True,
    )


class BuildLibraries(build_ext):
    """They are no modules of Python: one file serves all versions of it."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or True  # on all processors

    def build_extension(self, ext: Extension) -> None:
        # All are of one source, so each needs a folder for what is made of it.
        command = copy.copy(self)
        command.build_temp = str(Path(self.build_temp) / ext.name)
        build_ext.build_extension(command, ext)


PARQUET = ["pyarrow>=17"]
PLOTS = ["matplotlib>=3.9,<4"]
SCIENCE = ["scikit-learn>=1.5,<2", "scipy>=1.13,<2"]
# Models by URL or `hf://` name.
URL = ["cached-path>=1.6,<2", "huggingface-hub<1"]

EXTRAS = {
    "url": URL,
    "spacy": ["spacy>=3.7,<4"],
    # For pictures of `elmo-neighbors` and of the benchmarks.
    "plots": [*PLOTS, *SCIENCE],
    # For embedded sentences as Parquet, and for sentences from it.
    "parquet": PARQUET,
    # For corpora on many processes and machines. (Ray Data needs pandas, and asks for it.)
    "ray": ["ray[data]>=2.60,<3", *PARQUET],
    # What AllenNLP's code needs: configs, tasks, pretraining. Not allennlp itself, whose metadata asks for
    # torch<1.13, which has no build for today's Python: `pip install --no-deps allennlp==2.10.1` beside this.
    "allennlp": [
        "torch>=2.12,<2.13",
        "torchvision>=0.27,<0.28",
        "transformers>=4.40,<4.50",
        *URL,
        "base58>=2.1,<3",
        "dill>=0.3.8,<0.5",
        "fairscale>=0.4.13,<0.5",
        "jsonnet>=0.20,<1",
        "lmdb>=1.4,<4",
        "more-itertools>=10,<12",
        "nltk>=3.8,<4",
        "packaging>=23",
        "requests>=2.31,<3",
        *SCIENCE,
        "spacy>=3.7,<4",
        "tensorboardX>=2.6,<3",
        "termcolor>=2,<4",
    ],
}
# For `elmo-report`, which trains with AllenNLP.
EXTRAS["report"] = [*EXTRAS["allennlp"], *PLOTS, "jinja2>=3.1,<4", "pandas>=2.2,<4"]

setup(
    name="elmo_plugin",
    version=re.search(r'^__version__ = "(.+)"$', PACKAGE_SOURCE, re.MULTILINE).group(1),
    description="ELMo on today's Python and torch, alone and in AllenNLP 2.10.1",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=find_packages(include=["elmo_plugin", "elmo_plugin.*"]),
    py_modules=["elmo_plugin_spacy"],
    package_data={"elmo_plugin": ["py.typed", "pretrained/*/*", "report/page.html"]},
    cmdclass={"build_ext": BuildLibraries},
    ext_modules=[
        vector_unit_extension(unit, flags)
        for unit, flags in {
            "plain": [],
            **UNITS_OF_MACHINES.get(platform.machine(), {}),
        }.items()
    ],
    # spaCy finds the component by this name, without an import of the package.
    entry_points={"spacy_factories": ["elmo = elmo_plugin_spacy:make_elmo"]},
    install_requires=[
        "torch>=2.4",
        "numpy>=1.26,<3",
        "h5py>=3.11,<4",
        "tqdm>=4.66,<5",
        "filelock>=3.13,<4",
    ],
    extras_require=EXTRAS,
)
