"""Builds the compiled kernels; everything else about the project is in pyproject.toml.

Compiling takes a minute, and pip builds in a new folder each time. So each kernel is kept in `build/kernels`, with a
fingerprint of what it was made of, and copied from there as long as that has not changed.
"""

import os
import re
import shutil
import sys
import sysconfig
from hashlib import sha256
from pathlib import Path

import Cython
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KEPT = Path("build") / "kernels"
SANITIZE = os.environ.get("OTTLA_SANITIZE") == "1"
COMPILE_ARGS = ["-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer"] if SANITIZE else ["-O3"]
LINK_ARGS = ["-fsanitize=address"] if SANITIZE else []
DIRECTIVES = {"language_level": "3"}


def fingerprint(*parts: object) -> str:
    """A short name for these parts."""
    return sha256(repr(parts).encode()).hexdigest()[:16]


SETTINGS = fingerprint(
    COMPILE_ARGS,
    LINK_ARGS,
    DIRECTIVES,
    Cython.__version__,
    sys.version,
    sysconfig.get_platform(),
    [(name, os.environ.get(name)) for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED")],
)


class KeepingBuild(build_ext):
    """Compiles what is not kept, on all cores, and says what it compiles."""

    def finalize_options(self) -> None:
        """See `setuptools`."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count() or 1

    def build_extensions(self) -> None:
        """See `setuptools`."""
        self.wanted = {kernel.name: self.sources_of(kernel) for kernel in self.extensions}
        self.stale = [kernel for kernel in self.extensions if not self.is_kept(kernel)]
        self.number = 0
        if self.stale:
            print(f"{len(self.stale)} of {len(self.extensions)} kernels are to be compiled", flush=True)
            made = cythonize(self.stale, compiler_directives=DIRECTIVES, nthreads=self.parallel, force=True)
            for kernel, translated in zip(self.stale, made, strict=True):
                kernel.sources = translated.sources
        super().build_extensions()

    def build_extension(self, kernel: Extension) -> None:
        """See `setuptools`."""
        built = Path(self.get_ext_fullpath(kernel.name))
        built.parent.mkdir(parents=True, exist_ok=True)
        kept, recorded = self.kept(kernel)
        if kernel in self.stale:
            self.number += 1
            sys.stdout.write(f"compiling {kernel.name} ({self.number} of {len(self.stale)})\n")
            sys.stdout.flush()
            self.force = True
            super().build_extension(kernel)
            kept.parent.mkdir(parents=True, exist_ok=True)
            recorded.unlink(missing_ok=True)
            shutil.copy2(built, kept)
            recorded.write_text(self.wanted[kernel.name])
        else:
            # A new file instead of new content: a process that runs may have the old one in its memory.
            built.unlink(missing_ok=True)
            shutil.copy2(kept, built)

    def is_kept(self, kernel: Extension) -> bool:
        """Whether the kernel was compiled from these sources with these settings."""
        kept, recorded = self.kept(kernel)
        return kept.exists() and recorded.exists() and recorded.read_text() == self.wanted[kernel.name]

    def kept(self, kernel: Extension) -> tuple[Path, Path]:
        """Where a compiled kernel is kept, and the fingerprint of its sources."""
        kept = KEPT / SETTINGS / Path(self.get_ext_filename(kernel.name)).name
        kept = kept.with_name(f"{kernel.name}{kept.suffix}")
        return kept, kept.with_suffix(".sources")

    @staticmethod
    def sources_of(kernel: Extension) -> str:
        """A fingerprint of the kernel's source, and of the declarations and headers that it uses."""
        paths = [*kernel.sources, *kernel.depends]
        return fingerprint([(path, Path(path).read_bytes()) for path in paths])


ROOT = Path("src")
# Headers are named by their path from src, as in `cdef extern from "ottla/records/wire.h"`, or from the file's folder.
USED = re.compile(
    r"""^\s*(?:from\s+([\w.]+)\s+cimport|cimport\s+([\w.]+)|cdef extern from "([^"]+)"|#include "([^"]+)")""", re.M
)


def declarations_of(source: Path) -> set[Path]:
    """The declarations and headers of the project that a source uses, and those that they use themselves."""
    found: set[Path] = set()
    waiting = [source, source.with_suffix(".pxd")]
    while waiting:
        path = waiting.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        for module, other_module, header, near_header in USED.findall(path.read_text()):
            dotted = module or other_module
            if dotted:
                waiting.append(ROOT / f"{dotted.replace('.', '/')}.pxd")
            waiting += [ROOT / header, path.parent / header] if header else []
            waiting += [ROOT / near_header, path.parent / near_header] if near_header else []
    return found - {source}


kernels = [
    Extension(
        str(source.with_suffix("").relative_to("src")).replace("/", "."),
        [str(source)],
        include_dirs=["src"],
        depends=sorted(map(str, declarations_of(source))),
        extra_compile_args=COMPILE_ARGS,
        extra_link_args=LINK_ARGS,
    )
    for source in sorted(ROOT.rglob("*.pyx"))
]

# Cython's own processes import this file where processes are not forked.
if __name__ == "__main__":
    setup(ext_modules=kernels, cmdclass={"build_ext": KeepingBuild})
