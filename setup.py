"""The compiled search: built with Cython and the C compiler of the machine, else with that of the package `ziglang`."""

import os
import shlex
import shutil
import sys
import sysconfig
from glob import glob
from importlib.util import find_spec

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = "src/relvec/solvers/_native"
# RELVEC_BOUNDS=1 checks every index; RELVEC_SANITIZE=1 lets the compiler's sanitizers watch memory and arithmetic;
# RELVEC_COUNTED=1 counts how often each branch is taken.
BOUNDS, SANITIZE, COUNTED = (bool(os.environ.get(f"RELVEC_{name}")) for name in ("BOUNDS", "SANITIZE", "COUNTED"))
KIND = "bounds" if BOUNDS else "sanitize" if SANITIZE else "counted" if COUNTED else ""
SANITIZER_FLAGS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1"]
BOUNDS_FLAGS = ["-O1", "-D_GLIBCXX_ASSERTIONS"]  # of vectors of C++ too
COUNTER_FLAGS = ["--coverage", "-fprofile-update=prefer-atomic", "-O0"]
NO_COMPILER = (
    "relvec needs a C compiler to be built from source: install gcc or clang (apt-get install gcc, or "
    "xcode-select --install on a Mac), or let pip fetch one with `pip install ziglang`."
)


def find_compiler() -> str | None:
    """Return the path of the C compiler, where there is one."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(shlex.split(command)[0])


class Build(build_ext):
    """Builds with the compiler there is; a failure is never silent."""

    def build_extensions(self) -> None:
        if os.name == "posix" and find_compiler() is None:
            if find_spec("ziglang") is None:
                raise SystemExit(NO_COMPILER)
            zig = [sys.executable, "-m", "ziglang", "cc"]
            flags = ["-O2", "-fPIC", "-Wno-error", "-fwrapv", "-DNDEBUG"]
            plus = [sys.executable, "-m", "ziglang", "c++"]
            self.compiler.set_executables(
                compiler=zig + flags, compiler_so=zig + flags, linker_so=[*zig, "-shared"], linker_exe=zig,
                compiler_cxx=plus + flags, compiler_so_cxx=plus + flags, linker_so_cxx=[*plus, "-shared"],
            )  # fmt: skip
        windows = self.compiler.compiler_type == "msvc"  # by default it does not know `restrict`
        for extension in self.extensions:
            plus = extension.language == "c++"
            if windows:
                extension.extra_compile_args = ["/std:c++17" if plus else "/std:c11", "/O2"] + ["/EHsc"] * plus
            elif plus:
                extension.extra_compile_args = [*extension.extra_compile_args, "-std=c++17"]
        super().build_extensions()


def extensions() -> list[Extension]:
    """Return the compiled modules."""
    from Cython.Build import cythonize

    flags = {"sanitize": SANITIZER_FLAGS, "counted": COUNTER_FLAGS, "bounds": BOUNDS_FLAGS}.get(
        KIND, ["-O3"] if os.name == "posix" else []
    )
    sources = sorted(glob(f"{NATIVE}/*.pyx"))
    found = [
        Extension("relvec.solvers._native." + os.path.basename(source)[: -len(".pyx")], [source],
                  include_dirs=[NATIVE], depends=glob(f"{NATIVE}/*.h"), extra_compile_args=flags, extra_link_args=flags)
        for source in sources
    ]  # fmt: skip
    directives = {"language_level": "3", "boundscheck": BOUNDS, "initializedcheck": BOUNDS, "nonecheck": BOUNDS,
                  "wraparound": False, "cdivision": True}  # fmt: skip
    folder = f"build/cython{KIND}"
    return cythonize(found, include_path=["src"], compiler_directives=directives, build_dir=folder)


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": Build},
    # objects of one kind never serve another
    options={"build": {"build_base": f"build/{KIND}"}, "build_ext": {"force": True}} if KIND else {},
    setup_requires=[] if os.name != "posix" or find_compiler() else ["ziglang>=0.13"],
)
