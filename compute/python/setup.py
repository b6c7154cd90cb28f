"""Builds the module with CMake, against an installed Pando: pip wheel --no-build-isolation --no-deps compute/python.

Where Pando is not installed below /usr or /usr/local, its prefix is in CMAKE_PREFIX_PATH, which CMake reads.
"""

import os
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class CMakeBuild(build_ext):
    def build_extension(self, extension: Extension) -> None:
        source = os.path.dirname(os.path.abspath(__file__))
        output = os.path.dirname(os.path.abspath(self.get_ext_fullpath(extension.name)))
        build = os.path.join(os.path.abspath(self.build_temp), "cmake")
        os.makedirs(build, exist_ok=True)
        subprocess.run(["cmake", "-S", source, "-B", build, f"-DPANDO_PYTHON_OUTPUT={output}",
                        f"-DPython_EXECUTABLE={sys.executable}"], check=True)
        subprocess.run(["cmake", "--build", build], check=True)


setup(ext_modules=[Extension("pando._core", sources=[])], cmdclass={"build_ext": CMakeBuild})
