"""Packaging of elmo_plugin. `make demo`, `make test` and requirements*.txt hold the exact versions."""

import platform
import re
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

PACKAGE_SOURCE = (Path(__file__).parent / "elmo_plugin" / "__init__.py").read_text(encoding="utf-8")

# The fast kernel of frozen biLMs. Without a compiler, or on another processor, the package installs all the
# same and runs slower: `kernel` in its README. What the processor can do is asked at run time.
EXTENSIONS = [
    Extension(
        "elmo_plugin.bilm.kernels._avx512",
        ["elmo_plugin/bilm/kernels/avx512.cpp"],
        language="c++",
        extra_compile_args=[
            *("-O3", "-std=c++17", "-pthread", "-Wall", "-Wextra"),
            # GCC's own headers of intrinsics, before GCC 13.
            *("-Wno-uninitialized", "-Wno-maybe-uninitialized"),
            # Debugging information is several times as large as the code.
            "-g0",
            # A row has the same result, to the bit, whichever rows it is multiplied with.
            "-ffp-contract=off",
            *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"),
        ],
        optional=True,
    )
]


class BuildKernels(build_ext):
    """Compile without bfloat16, and then without int8, where the assembler does not know the instructions."""

    def build_extension(self, ext: Extension) -> None:
        for left_out in [(), ("BFLOAT16",), ("BFLOAT16", "INT8")]:
            ext.define_macros = [(f"ELMO_WITHOUT_{precision}", None) for precision in left_out]
            try:
                return super().build_extension(ext)
            except CompileError as error:
                last_error = error
        raise last_error


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
    cmdclass={"build_ext": BuildKernels},
    ext_modules=EXTENSIONS if platform.machine() in ("x86_64", "AMD64") else [],
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
