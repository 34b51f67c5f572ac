"""Builds the compiled kernels; everything else about the project is in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SANITIZE = os.environ.get("OTTLA_SANITIZE") == "1"
COMPILE_ARGS = ["-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer"] if SANITIZE else ["-O3"]
LINK_ARGS = ["-fsanitize=address"] if SANITIZE else []

kernels = [
    Extension(
        str(source.with_suffix("").relative_to("src")).replace("/", "."),
        [str(source)],
        include_dirs=[str(source.parent)],
        depends=[str(header) for header in source.parent.glob("*.h")],
        extra_compile_args=COMPILE_ARGS,
        extra_link_args=LINK_ARGS,
    )
    for source in sorted(Path("src").rglob("*.pyx"))
]

setup(ext_modules=cythonize(kernels, compiler_directives={"language_level": "3"}))
