"""Prints the oldest versions of the required packages that pyproject.toml allows, as pip wants them."""

import re
import tomllib
from pathlib import Path


def main():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+)", dependency) for dependency in project["dependencies"]]
    print(*(f"{match[1]}=={match[2]}.*" for match in found))


if __name__ == "__main__":
    main()
